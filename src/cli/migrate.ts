import type { Command } from "commander";
import type { Flags } from "./config.ts";
import { addStoreOptions, KEPT_STORES, withMaintenance } from "./maintenance.ts";

/** Adds `todo migrate`. */
export function addMigrateCommand(program: Command): void {
  const command = program
    .command("migrate")
    .description("Bring the schema of a store up to date. On PostgreSQL, run it as the owner of the schema.");
  addStoreOptions(command, KEPT_STORES)
    .addHelpText(
      "after",
      "\nA server does the same at its start, if it has the rights. On PostgreSQL, this command also creates the schema.",
    )
    .action((flags: Flags) =>
      withMaintenance(flags, KEPT_STORES, async (maintenance) => {
        const { from, to } = await maintenance.migrate();
        process.stdout.write(
          from === to
            ? `the schema is current (format ${to})\n`
            : `migrated the schema from format ${from} to ${to}\n`,
        );
      }),
    );
}
