import type { Command } from "commander";
import { type Flags, readStore } from "../../config/config.ts";
import type { BackupSummary } from "../../storage/maintenance.ts";
import { formatPosition } from "../../todo.ts";
import { addStoreOptions, runOnStore, SQLITE_URL } from "../store-command.ts";

/** Adds `todo backup`. */
export function addBackupCommand(program: Command): void {
  const command = program
    .command("backup")
    .description("Back up a SQLite store, API keys included, into a new file. Works while a server runs.")
    .argument("<file>");
  addStoreOptions(command, SQLITE_URL).action((file: string, flags: Flags) =>
    runOnStore(readStore(flags, process.env), async (store, signal) =>
      printSummary("backed up", await store.backup(file, signal)),
    ),
  );
}

/** Adds `todo restore`. */
export function addRestoreCommand(program: Command): void {
  const command = program
    .command("restore")
    .description(
      "Restore a backup, an export or a rescue file as a SQLite store. Moves the old files aside. Stop the server first.",
    )
    .argument("<file>");
  addStoreOptions(command, SQLITE_URL).action((file: string, flags: Flags) =>
    runOnStore(readStore(flags, process.env), async (store, signal) => {
      const restored = await store.restore(file, signal);
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
