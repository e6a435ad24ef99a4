import type { Command } from "commander";
import { version } from "../../../package.json" with { type: "json" };
import { type Flags, readService } from "../../config/config.ts";
import { CLIENT_SETTINGS, SettingOption } from "../../config/settings.ts";
import { createApi, describeError } from "../client-command.ts";
import { type CommandProcess, printError } from "../terminal/output.ts";

/** Adds `todo mcp`. */
export function addMcpCommand(program: Command, process: CommandProcess): void {
  program
    .command("mcp")
    .description(
      "Offer the to-dos of a running service to an assistant, which starts this command (Model Context Protocol).",
    )
    .addOption(new SettingOption(CLIENT_SETTINGS.url))
    .action((flags: Flags) => serveAssistant(process, flags));
}

/** Serves an assistant over standard input and output. Loads the protocol only here, because it would slow down other commands. */
async function serveAssistant(process: CommandProcess, flags: Flags): Promise<void> {
  const service = readService(flags, process.env);
  const { serveOverStdio } = await import("../../mcp/stdio.ts");
  await serveOverStdio({
    todos: createApi(service, {}),
    describe: (error) => describeError(error, service),
    version,
    input: process.stdin,
    output: process.stdout,
    warn: (message) => printError(process, message),
  });
}
