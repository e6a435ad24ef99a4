import { Argument, type Command, Option } from "commander";
import type { ListQuery } from "../sdk/client.ts";
import { apiOf, runCommand } from "./client-command.ts";
import { escapeControls } from "./terminal.ts";

/** The command that the completion scripts call. */
const COMPLETE = "__complete";
/** Somebody waits for the candidates. */
const TIMEOUT_MS = 5000;
const MAX_CANDIDATES = 1000;

/** The to-dos that a command is useful for; all to-dos where it is not listed. */
const USEFUL: Readonly<Record<string, ListQuery>> = {
  "todo done": { done: false },
  "todo undo": { done: true },
};

/** Adds `todo completion` and the hidden command that its scripts call. */
export function addCompletionCommands(program: Command): void {
  program
    .command("completion")
    .description("Print a completion script for a shell.")
    .addArgument(new Argument("<shell>").choices(Object.keys(SCRIPTS)))
    .addHelpText("after", HELP)
    .action((shell: string) => {
      process.stdout.write(SCRIPTS[shell]?.(commandSpecs(program)) ?? "");
    });
  program
    .command(COMPLETE, { hidden: true })
    .description("Print the ids that a command may be about, each with its title after a tab.")
    .argument("<command>", "name of the command, such as todo done")
    .argument("<line>", "the command line up to the cursor")
    .action((command: string, line: string) => printIds(command, line));
}

async function printIds(command: string, line: string): Promise<void> {
  const url = /\s--url[ =](\S+)/.exec(line)?.[1];
  await runCommand(url === undefined ? {} : { url }, async ({ service, signal }) => {
    const api = apiOf(service, { retries: 0, timeoutMs: TIMEOUT_MS });
    const { todos } = await api.list({ ...USEFUL[command], limit: MAX_CANDIDATES }, { signal });
    process.stdout.write(todos.map(({ id, title }) => `${id}\t${escapeControls(title)}\n`).join(""));
  });
}

const HELP = `
bash: add this line to ~/.bashrc:  source <(todo completion bash)
zsh:  add this line to ~/.zshrc, below compinit:  source <(todo completion zsh)
fish: todo completion fish > ~/.config/fish/completions/todo.fish`;

/** A command and the words that may follow it. */
interface CommandSpec {
  /** The full name, such as "todo keys create". */
  readonly path: string;
  readonly takesIds: boolean;
  readonly words: readonly Candidate[];
}

interface Candidate {
  readonly text: string;
  readonly description: string;
  /** Whether it is an option that is followed by a value. */
  readonly takesValue: boolean;
}

function commandSpecs(command: Command, above = ""): CommandSpec[] {
  const path = `${above}${command.name()}`;
  const help = new Option("--help", "display help for command");
  const commands = command.commands.filter((one) => one.name() !== COMPLETE);
  const choices = command.registeredArguments.flatMap(({ argChoices }) => argChoices ?? []);
  const words: Candidate[] = [
    ...choices.map((text) => ({ text, description: "", takesValue: false })),
    ...commands.map((one) => ({
      text: one.name(),
      description: one.description(),
      takesValue: false,
    })),
    ...[...command.options, help].map(({ long, description, required }) => ({
      text: long ?? "",
      description,
      takesValue: required,
    })),
  ];
  const takesIds = command.registeredArguments.some((argument) => argument.name() === "id");
  return [{ path, takesIds, words }, ...commands.flatMap((one) => commandSpecs(one, `${path} `))];
}

const SCRIPTS: Readonly<Record<string, (specs: readonly CommandSpec[]) => string>> = {
  bash: (specs) => `_todo() {
  local cur=\${COMP_WORDS[COMP_CWORD]} prev=\${COMP_WORDS[COMP_CWORD-1]} at=todo word
  COMPREPLY=()
  for word in "\${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
    case "$at $word" in
      ${paths(specs)}) at="$at $word" ;;
    esac
  done
  case $prev in
    ${optionsWithValue(specs)}) return ;;
  esac
  case $at in
    ${pathsWithIds(specs)}) if [[ $cur != -* ]]; then
      COMPREPLY=($(compgen -W "$("\${COMP_WORDS[0]}" ${COMPLETE} "$at" "$COMP_LINE" 2>/dev/null | cut -f 1)" -- "$cur"))
      return
    fi ;;
  esac
  case $at in
${specs.map(({ path, words }) => `    "${path}") COMPREPLY=($(compgen -W "${texts(words)}" -- "$cur")) ;;\n`).join("")}  esac
}
complete -o default -F _todo todo
`,

  zsh: (specs) => `#compdef todo
_todo() {
  local at=todo word
  local -a found
  for word in "\${(@)words[2,CURRENT-1]}"; do
    case "$at $word" in
      ${paths(specs)}) at="$at $word" ;;
    esac
  done
  case $words[CURRENT-1] in
    ${optionsWithValue(specs)}) _files; return ;;
  esac
  case $at in
    ${pathsWithIds(specs)}) if [[ $PREFIX != -* ]]; then
      found=(\${(f)"$($words[1] ${COMPLETE} "$at" "$BUFFER" 2>/dev/null)"})
      found=(\${\${found//\\\\/\\\\\\\\}/$'\\t'/:})
      _describe -V to-do found
      return
    fi ;;
  esac
  case $at in
${specs.map(({ path, words }) => `    "${path}") found=(${words.map(zshWord).join(" ")}) ;;\n`).join("")}  esac
  _describe todo found || _files
}
compdef _todo todo
`,

  fish: (specs) => `function __todo_at
  set -l at todo
  for word in (commandline -opc)[2..]
    switch "$at $word"
      case ${specs
        .slice(1)
        .map(({ path }) => quote(path))
        .join(" ")}
        set at "$at $word"
    end
  end
  test "$at" = "$argv[1]"
end
function __todo_ids
  set -l words (commandline -opc)
  $words[1] ${COMPLETE} $argv[1] (commandline -cp) 2>/dev/null
end
${specs.map(fishIds).join("")}${specs.flatMap(({ path, words }) => words.map((word) => fishLine(path, word))).join("")}`,
};

/** Returns all subcommands as a pattern for `case`. */
const paths = (specs: readonly CommandSpec[]): string =>
  specs
    .slice(1)
    .map(({ path }) => `"${path}"`)
    .join("|");

/** Returns the commands that take ids as a pattern for `case`. */
const pathsWithIds = (specs: readonly CommandSpec[]): string =>
  specs.flatMap(({ path, takesIds }) => (takesIds ? `"${path}"` : [])).join("|");

const optionsWithValue = (specs: readonly CommandSpec[]): string =>
  [
    ...new Set(
      specs.flatMap(({ words }) => words.filter(({ takesValue }) => takesValue).map(({ text }) => text)),
    ),
  ].join("|");

const texts = (words: readonly Candidate[]): string => words.map(({ text }) => text).join(" ");

const zshWord = ({ text, description }: Candidate): string => quote(`${text}:${description}`);

function fishLine(path: string, { text, description, takesValue }: Candidate): string {
  const word = text.startsWith("--") ? `-l ${text.slice(2)}${takesValue ? " -r" : ""}` : `-f -a ${text}`;
  return `complete -c todo -n ${quote(`__todo_at ${quote(path)}`)} ${word} -d ${quote(description)}\n`;
}

function fishIds({ path, takesIds }: CommandSpec): string {
  if (!takesIds) return "";
  const candidates = quote(`(__todo_ids ${quote(path)})`);
  return `complete -c todo -n ${quote(`__todo_at ${quote(path)}`)} -k -f -a ${candidates}\n`;
}

/** Quotes text as one word for bash, zsh and fish. */
const quote = (text: string): string => `'${text.replaceAll("'", `'"'"'`)}'`;
