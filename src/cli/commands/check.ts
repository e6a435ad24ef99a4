import type { Command } from "commander";
import type { Flags } from "../../config/config.ts";
import type { StoreAdmin } from "../../storage/maintenance.ts";
import {
  addStoreOptions,
  readAcceptedStore,
  runOnStore,
  sqliteStore,
  sqliteStores,
} from "../store-command.ts";

const DAMAGED_EXIT_CODE = 1;
const CHECKED = sqliteStores("to check PostgreSQL, run pg_amcheck");

/** Adds `todo check`. */
export function addCheckCommand(program: Command): void {
  const command = program
    .command("check")
    .description("Check a SQLite store or a backup for damage. Works while a server runs.")
    .argument("[file]", "the file to check; default: the configured store");
  addStoreOptions(command, CHECKED)
    .addHelpText(
      "after",
      "\nThe exit code is 0 if the file is sound, 1 if it is damaged, and 2 if it cannot be checked.",
    )
    .action((file: string | undefined, flags: Flags) =>
      runOnStore(file === undefined ? readAcceptedStore(flags, CHECKED) : sqliteStore(file, command), check),
    );
}

async function check(store: StoreAdmin): Promise<void> {
  const results = await store.check();
  for (const { name, isSound, detail } of results) {
    process.stdout.write(`${name}: ${isSound ? "" : "damaged: "}${detail}\n`);
  }
  if (results.some(({ isSound }) => !isSound)) process.exitCode = DAMAGED_EXIT_CODE;
}
