import type { Command } from "commander";
import { formatPosition } from "../../todo.ts";
import { runOnStore, sqliteStore } from "../store-command.ts";

/** Adds `todo accept-loss`. */
export function addAcceptLossCommand(program: Command): void {
  const command = program
    .command("accept-loss")
    .description(
      "Let the server start on a SQLite file that has lost changes, without them. Stop the server first.",
    )
    .argument("<file>");
  command.action((file: string) =>
    runOnStore(sqliteStore(file, command), async (store) => {
      const { loss, position } = await store.acceptLoss();
      process.stdout.write(`accepted: ${loss}; position ${formatPosition(position)}\n`);
    }),
  );
}
