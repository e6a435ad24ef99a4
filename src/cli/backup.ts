import type { Command } from "commander";
import type { BackupSummary } from "../storage/maintenance.ts";
import { formatPosition } from "../todo.ts";
import type { Flags } from "./config.ts";
import { addStoreOptions, withMaintenance } from "./maintenance.ts";

/** Adds `todo backup`. */
export function addBackupCommand(program: Command): void {
  const command = program
    .command("backup")
    .description("Back up the store, API keys included, into a new file. Works while a server runs.")
    .argument("<file>");
  addStoreOptions(command).action((file: string, flags: Flags) =>
    withMaintenance(flags, async (maintenance, signal) =>
      printSummary("backed up", await maintenance.backup(file, signal)),
    ),
  );
}

/** Adds `todo restore`. */
export function addRestoreCommand(program: Command): void {
  const command = program
    .command("restore")
    .description(
      "Restore a backup into a store that is empty, missing, or has lost changes. Stop the server first.",
    )
    .argument("<file>");
  addStoreOptions(command).action((file: string, flags: Flags) =>
    withMaintenance(flags, async (maintenance, signal) => {
      const restored = await maintenance.restore(file, signal);
      printSummary("restored", restored);
      if (restored.movedTo !== undefined)
        process.stdout.write(`moved the old store to ${restored.movedTo}\n`);
    }),
  );
}

function printSummary(what: string, { todos, bytes, position }: BackupSummary): void {
  process.stdout.write(
    `${what} ${todos} ${todos === 1 ? "to-do" : "to-dos"}, ${bytes} bytes, position ${formatPosition(position)}\n`,
  );
}
