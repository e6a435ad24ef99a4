import type { Command } from "commander";
import type { Flags } from "../../config/config.ts";
import type { BackupSummary } from "../../storage/maintenance.ts";
import { formatPosition } from "../../todo.ts";
import { addStoreOptions, readAcceptedStore, runOnStore, sqliteStores } from "../store-command.ts";

const BACKED_UP = sqliteStores("to back up PostgreSQL, run pg_dump");
const RESTORED = sqliteStores("to restore PostgreSQL, run pg_restore");

/** Adds `todo backup`. */
export function addBackupCommand(program: Command): void {
  const command = program
    .command("backup")
    .description("Back up a SQLite store, API keys included, into a new file. Works while a server runs.")
    .argument("<file>");
  addStoreOptions(command, BACKED_UP).action((file: string, flags: Flags) =>
    runOnStore(readAcceptedStore(flags, BACKED_UP), async (store, signal) =>
      printSummary("backed up", await store.backup(file, signal)),
    ),
  );
}

/** Adds `todo restore`. */
export function addRestoreCommand(program: Command): void {
  const command = program
    .command("restore")
    .description(
      "Restore a backup into a SQLite store that is empty, missing, or has lost changes. Stop the server first.",
    )
    .argument("<file>");
  addStoreOptions(command, RESTORED).action((file: string, flags: Flags) =>
    runOnStore(readAcceptedStore(flags, RESTORED), async (store, signal) => {
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
