import { Argument, type Command, Option } from "commander";

/** Adds `todo completion`. */
export function addCompletionCommands(program: Command): void {
  program
    .command("completion")
    .description("Print a completion script for a shell.")
    .addArgument(new Argument("<shell>").choices(Object.keys(SCRIPTS)))
    .addHelpText("after", HELP)
    .action((shell: string) => {
      process.stdout.write(SCRIPTS[shell]?.(commandSpecs(program)) ?? "");
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
  const choices = command.registeredArguments.flatMap(({ argChoices }) => argChoices ?? []);
  const words: Candidate[] = [
    ...choices.map((text) => ({ text, description: "", takesValue: false })),
    ...command.commands.map((one) => ({
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
  return [{ path, words }, ...command.commands.flatMap((one) => commandSpecs(one, `${path} `))];
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
${specs.flatMap(({ path, words }) => words.map((word) => fishLine(path, word))).join("")}`,
};

/** Returns all subcommands as a pattern for `case`. */
const paths = (specs: readonly CommandSpec[]): string =>
  specs
    .slice(1)
    .map(({ path }) => `"${path}"`)
    .join("|");

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

/** Quotes text as one word for bash, zsh and fish. */
const quote = (text: string): string => `'${text.replaceAll("'", `'"'"'`)}'`;
