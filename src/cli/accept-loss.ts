import type { Command } from "commander";
import { formatPosition } from "../todo.ts";
import { maintain, sqliteUrl } from "./maintenance.ts";

/** Adds `todo accept-loss`. */
export function addAcceptLossCommand(program: Command): void {
  const command = program
    .command("accept-loss")
    .description(
      "Let the server start on a SQLite file that has lost changes, without them. Stop the server first.",
    )
    .argument("<file>");
  command.action((file: string) =>
    maintain(sqliteUrl(file, command), "the file", async (maintenance) => {
      const { loss, position } = await maintenance.acceptLoss();
      process.stdout.write(`accepted: ${loss}; position ${formatPosition(position)}\n`);
    }),
  );
}
