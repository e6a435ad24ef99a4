import { Command, CommanderError } from "commander";
import { version } from "../../package.json" with { type: "json" };
import { type Flags, readConfig } from "../config/config.ts";
import type { Environment } from "../config/setting-values.ts";
import { addServeOptions } from "../config/settings.ts";
import { CommandError, USAGE_EXIT_CODE, UsageError } from "../config/usage-error.ts";
import { hasReplacement } from "../text.ts";
import {
  ClosedPipeError,
  type CommandProcess,
  handleStdoutErrors,
  ProgressLine,
  printError,
} from "./terminal/output.ts";

/** Columns of a description beside the longest flag on a terminal of 60 columns. */
const MIN_WIDTH_TO_WRAP = 20;

/** The lines fit a terminal of 60 columns. */
const PROGRAM_HELP = `
Examples:
  todo serve --store sqlite:todos.db  keep data in a file
  todo add buy milk                   add a to-do
  todo list --open --limit 20         show 20 open to-dos
  todo done 1 2                       mark two as done
  todo keys create phone              create an API key

Exit codes:
  0    success
  1    failure; standard error says why
  2    invalid arguments or settings; nothing was done
  3    not found; after an export: incomplete
  4    the token is missing or not valid
  130  interrupted by Ctrl-C`;

/** Commands, each with the words that people try for it. */
const TRIED_WORDS = {
  add: ["new", "create"],
  done: ["tick", "complete", "finish"],
  reopen: ["undo", "uncheck"],
  rm: ["del"],
  health: ["status"],
  serve: ["start", "run"],
};

/** Runs a command. A failure sets the exit code, and prints why. */
export async function runProgram(args: readonly string[], process: CommandProcess): Promise<void> {
  try {
    if (args.some(hasReplacement))
      throw new UsageError("an argument is not UTF-8: check the encoding of the terminal");
    await (await createProgram(process, args[0])).parseAsync(args, { from: "user" });
  } catch (error) {
    if (error instanceof CommanderError) {
      process.exitCode = error.exitCode === 0 ? 0 : USAGE_EXIT_CODE;
      return;
    }
    if (!(error instanceof CommandError)) throw error;
    if (!(error instanceof ClosedPipeError)) printError(process, error.message);
    process.exitCode = error.exitCode;
  }
}

/**
 * Returns the program with all its commands.
 * @param command the name of the command to run: `serve` comes alone
 */
export async function createProgram(process: CommandProcess, command?: string): Promise<Command> {
  const program = new Command("todo")
    .description("A to-do HTTP service.")
    .version(version)
    .configureHelp({ minWidthToWrap: MIN_WIDTH_TO_WRAP })
    .addHelpText("after", PROGRAM_HELP)
    .configureOutput({
      writeOut: (text) => process.stdout.write(text),
      writeErr: (text) => process.stderr.write(text),
      outputError: (message) => printError(process, toOneLine(message, program.args, process.env)),
    })
    .exitOverride();

  program.commandsGroup("Server:");
  const serveCommand = program.command("serve").description("Run the server.");
  addServeOptions(serveCommand);
  serveCommand.addHelpText(
    "after",
    "\nA flag overrides its variable. TODO_ADMIN_PASSWORD has no flag because other users can see arguments.",
  );
  // The log of the server handles these errors itself.
  program.hook("preAction", (_program, running) => {
    if (running !== serveCommand) handleStdoutErrors(process);
  });
  serveCommand.action(async (flags: Flags) => {
    const { serve } = await import("../serve/serve.ts");
    const progress = new ProgressLine(process.stderr);
    const started = serve(readConfig(flags, process.env), progress.report);
    return started.finally(() => progress.clear());
  });
  // A server runs for long, so it does not load the other commands.
  if (command !== serveCommand.name())
    (await import("./other-commands.ts")).addOtherCommands(program, process);
  return program.helpCommand(true);
}

function toOneLine(message: string, args: readonly string[], env: Environment): string {
  // The text after "=" may be a secret.
  const line = message
    .replace(/^error: /, "")
    .replace(/'(--[\w-]+)=.*'/, "'$1'")
    .trim()
    .replaceAll("\n", " ");
  const [unknown = "", word = ""] = /^unknown command '(.*?)'/.exec(line) ?? [];
  const meant = Object.entries(TRIED_WORDS).find(([, words]) => words.includes(word))?.[0];
  if (args[0] === word && meant !== undefined) return `${unknown} (Did you mean ${meant}?)`;
  if (!line.startsWith("too many arguments")) return line;
  // npm consumes flags that stand before `--`, and passes on their values.
  if (env.npm_lifecycle_event === "start")
    return `${line} Put -- before flags, as in: npm start -- --port 8080`;
  return `${line} Add --help to see its arguments.`;
}
