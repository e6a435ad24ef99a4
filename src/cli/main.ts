#!/usr/bin/env bun
import { Command } from "commander";
import { version } from "../../package.json" with { type: "json" };
import { addAcceptLossCommand } from "./accept-loss.ts";
import { addBackupCommand, addRestoreCommand } from "./backup.ts";
import { addCheckCommand } from "./check.ts";
import { addCompletionCommand } from "./completion.ts";
import { type Flags, readConfig } from "./config.ts";
import { addDoctorCommand } from "./doctor.ts";
import { addHealthCommand } from "./health.ts";
import { addKeysCommand } from "./keys.ts";
import { addMcpCommand } from "./mcp.ts";
import { addMigrateCommand } from "./migrate.ts";
import { handleStdoutErrors } from "./output.ts";
import { serve } from "./serve.ts";
import { addServeOptions } from "./settings.ts";
import { addTodoCommands } from "./todos.ts";
import { addExportCommand, addImportCommand } from "./transfer.ts";
import { UnavailableError, UsageError } from "./usage-error.ts";
import { addUsersCommand } from "./users.ts";

const USAGE_EXIT_CODE = 2;

const program = new Command("todo")
  .description("A to-do HTTP service.")
  .version(version)
  .configureOutput({ outputError: (message, write) => write(`todo: ${toOneLine(message)}\n`) })
  .exitOverride(({ exitCode }) => process.exit(exitCode === 0 ? 0 : USAGE_EXIT_CODE));

const serveCommand = program.command("serve").description("Run the server.");
addServeOptions(serveCommand);
serveCommand.addHelpText(
  "after",
  "\nA flag overrides its variable. TODO_ADMIN_PASSWORD has no flag because other users can see arguments.",
);
// The log of the server handles these errors itself.
program.hook("preAction", (_program, command) => {
  if (command !== serveCommand) handleStdoutErrors();
});
serveCommand.action((flags: Flags) => serve(readConfig(flags, process.env), process.env));
addTodoCommands(program);
addMcpCommand(program);
addHealthCommand(program);
addDoctorCommand(program);
addKeysCommand(program);
addUsersCommand(program);
addBackupCommand(program);
addRestoreCommand(program);
addAcceptLossCommand(program);
addExportCommand(program);
addImportCommand(program);
addCheckCommand(program);
addMigrateCommand(program);
addCompletionCommand(program);

try {
  await program.parseAsync();
} catch (error) {
  if (!(error instanceof UsageError || error instanceof UnavailableError)) throw error;
  process.stderr.write(`todo: ${error.message}\n`);
  process.exit(error instanceof UsageError ? USAGE_EXIT_CODE : 1);
}

function toOneLine(message: string): string {
  // The text after "=" may be a secret.
  const line = message
    .replace(/^error: /, "")
    .replace(/'(--[\w-]+)=.*'/, "'$1'")
    .trim()
    .replaceAll("\n", " ");
  if (!line.startsWith("too many arguments")) return line;
  const called = calledCommand();
  // npm consumes flags that stand before `--`, and passes on their values.
  if (called === "todo serve" && process.env.npm_lifecycle_event === "start")
    return `${line} Put -- before flags, as in: npm start -- --port 8080`;
  return `${line} Run ${called} --help for its arguments.`;
}

/** Returns the names of the command on the command line: `todo keys create`. */
function calledCommand(): string {
  const names = [program.name()];
  let command: Command | undefined = program;
  for (const argument of process.argv.slice(2)) {
    command = command.commands.find((one) => one.name() === argument);
    if (command === undefined) break;
    names.push(command.name());
  }
  return names.join(" ");
}
