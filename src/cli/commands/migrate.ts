import type { Command } from "commander";
import { type Flags, readStore } from "../../config/config.ts";
import { addStoreOptions, KEPT_URLS, runOnStore } from "../store-command.ts";

/** Adds `todo migrate`. */
export function addMigrateCommand(program: Command): void {
  const command = program
    .command("migrate")
    .description("Bring the schema of a store up to date. On PostgreSQL, run it as the owner of the schema.");
  addStoreOptions(command, KEPT_URLS)
    .addHelpText(
      "after",
      "\nA server does the same at its start, if it has the rights. On PostgreSQL, this command also creates the schema.",
    )
    .action((flags: Flags) =>
      runOnStore(readStore(flags, process.env), async (store) => {
        const { from, to } = await store.migrate();
        process.stdout.write(
          from === to
            ? `the schema is current (format ${to})\n`
            : `migrated the schema from format ${from} to ${to}\n`,
        );
      }),
    );
}
