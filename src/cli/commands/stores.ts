import type { Command } from "commander";
import type { Flags } from "../../config/config.ts";
import type { Sourced } from "../../config/setting-values.ts";
import { UsageError } from "../../config/usage-error.ts";
import { errorMessage } from "../../error-message.ts";
import type { BackupSummary, StoreAdmin } from "../../storage/maintenance.ts";
import { formatPosition } from "../../todo.ts";
import { addStoreCommand, KEPT_URLS, runOnStore, SQLITE_URL } from "../command.ts";
import type { CommandProcess } from "../terminal/output.ts";

const DAMAGED_EXIT_CODE = 1;

/** Adds the commands for whole stores, besides `export` and `import`. */
export function addStoreCommands(program: Command, process: CommandProcess): void {
  const add = (name: string, description: string, urls = SQLITE_URL): Command =>
    addStoreCommand(program, name, description, urls);

  add("backup", "Back up a SQLite store, API keys included, into a new file. Works while a server runs.")
    .argument("<file>")
    .action((file: string, flags: Flags) => backup(process, file, flags));
  add(
    "restore",
    "Restore a backup, an export or a rescue file as a SQLite store. Moves the old files aside. Stop the server first.",
  )
    .argument("<file>")
    .action((file: string, flags: Flags) => restore(process, file, flags));
  add("check", "Check a SQLite store or a backup for damage. Works while a server runs.")
    .argument("[file]", "the file to check; default: the configured store")
    .option("--json", "print each check as a line of JSON with name, status (ok or damaged) and text")
    .addHelpText(
      "after",
      "\nThe exit code is 0 if the file is sound, 1 if it is damaged, and 2 if it cannot be checked.",
    )
    .action((file: string | undefined, flags: Flags) => check(process, file, flags));
  add(
    "migrate",
    "Update the schema of a store. On PostgreSQL, also creates it: run it as its owner.",
    KEPT_URLS,
  )
    .addHelpText("after", "\nA server does the same at its start, if it has the rights.")
    .action((flags: Flags) => migrate(process, flags));
}

const backup = (process: CommandProcess, file: string, flags: Flags): Promise<void> =>
  runOnStore(process, flags, async (store, task) =>
    printSummary(process, "backed up", await store.backup(file, task)),
  );

const restore = (process: CommandProcess, file: string, flags: Flags): Promise<void> =>
  runOnStore(process, flags, async (store, task) => {
    const restored = await store.restore(file, task);
    printSummary(process, "restored", restored);
    if (restored.warning !== undefined) process.stdout.write(`warning: ${restored.warning}\n`);
    if (restored.keys > 0)
      process.stdout.write(
        `${restored.keys} API ${restored.keys === 1 ? "key is" : "keys are"} valid, as at the time of the backup: revoke those that were revoked since then\n`,
      );
    if (restored.movedTo !== undefined) process.stdout.write(`moved the old store to ${restored.movedTo}\n`);
  });

function printSummary(
  process: CommandProcess,
  what: string,
  { todos, bytes, position }: BackupSummary,
): void {
  process.stdout.write(
    `${what} ${todos} ${todos === 1 ? "to-do" : "to-dos"}, ${bytes} bytes, position ${formatPosition(position)}\n`,
  );
}

function check(process: CommandProcess, file: string | undefined, flags: Flags): Promise<void> {
  const work = async (store: StoreAdmin): Promise<void> => {
    const results = await store.check().catch((error) => {
      throw new UsageError(errorMessage(error));
    });
    for (const { name, isSound, detail } of results) {
      const line =
        flags.json === undefined
          ? `${name}: ${isSound ? "" : "damaged: "}${detail}`
          : JSON.stringify({ name, status: isSound ? "ok" : "damaged", text: detail });
      process.stdout.write(`${line}\n`);
      if (!isSound) process.exitCode = DAMAGED_EXIT_CODE;
    }
  };
  return runOnStore(process, flags, work, file === undefined ? undefined : sqliteStore(file));
}

const migrate = (process: CommandProcess, flags: Flags): Promise<void> =>
  runOnStore(process, flags, async (store) => {
    const { from, to } = await store.migrate();
    const what = from === to ? "is current" : `was migrated from format ${from}`;
    process.stdout.write(`the schema ${what} (format ${to})\n`);
  });

/**
 * Returns the SQLite file that an argument names as PATH or sqlite:PATH. Throws a UsageError for other stores. It does not
 * repeat them, because they may contain a password.
 */
function sqliteStore(argument: string): Sourced {
  if (argument === "memory:" || /:\/\/|\bpassword=/.test(argument))
    throw new UsageError("todo check is for SQLite files: give PATH or sqlite:PATH");
  return { value: argument.startsWith("sqlite:") ? argument : `sqlite:${argument}`, source: "the file" };
}
