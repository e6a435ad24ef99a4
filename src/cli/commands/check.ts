import type { Command } from "commander";
import { type Flags, readStore } from "../../config/config.ts";
import type { CheckResult, StoreAdmin } from "../../storage/maintenance.ts";
import { addStoreOptions, runOnStore, SQLITE_URL, sqliteStore } from "../store-command.ts";

const DAMAGED_EXIT_CODE = 1;

/** Adds `todo check`. */
export function addCheckCommand(program: Command): void {
  const command = program
    .command("check")
    .description("Check a SQLite store or a backup for damage. Works while a server runs.")
    .argument("[file]", "the file to check; default: the configured store");
  addStoreOptions(command, SQLITE_URL)
    .option("--json", "print each check as a line of JSON with name, status (ok or damaged) and text")
    .addHelpText(
      "after",
      "\nThe exit code is 0 if the file is sound, 1 if it is damaged, and 2 if it cannot be checked.",
    )
    .action((file: string | undefined, flags: Flags) =>
      runOnStore(file === undefined ? readStore(flags, process.env) : sqliteStore(file, command), (store) =>
        check(store, flags.json === undefined ? toText : toJson),
      ),
    );
}

async function check(store: StoreAdmin, encode: (result: CheckResult) => string): Promise<void> {
  const results = await store.check();
  for (const result of results) process.stdout.write(`${encode(result)}\n`);
  if (results.some(({ isSound }) => !isSound)) process.exitCode = DAMAGED_EXIT_CODE;
}

const toText = ({ name, isSound, detail }: CheckResult): string =>
  `${name}: ${isSound ? "" : "damaged: "}${detail}`;

const toJson = ({ name, isSound, detail }: CheckResult): string =>
  JSON.stringify({ name, status: isSound ? "ok" : "damaged", text: detail });
