import { Argument, type Command, Option } from "commander";

/** Adds `todo completion`; it knows what the program has by then. */
export function addCompletionCommand(program: Command): void {
  program
    .command("completion")
    .description("Print what makes a shell complete this command.")
    .addArgument(new Argument("<shell>").choices(Object.keys(SCRIPTS)))
    .addHelpText("after", HELP)
    .action((shell: string) => {
      process.stdout.write(SCRIPTS[shell]?.(placesIn(program)) ?? "");
    });
}

const HELP = `
bash: add this line to ~/.bashrc:  source <(todo completion bash)
zsh:  add this line to ~/.zshrc, below compinit:  source <(todo completion zsh)
fish: todo completion fish > ~/.config/fish/completions/todo.fish`;

/** A command, and what may stand behind it. */
interface Place {
  /** Such as "todo keys create". */
  readonly path: string;
  readonly words: readonly Word[];
}

interface Word {
  readonly text: string;
  readonly about: string;
  /** Whether it is an option whose value comes behind it. */
  readonly takesValue: boolean;
}

function placesIn(command: Command, above = ""): Place[] {
  const path = `${above}${command.name()}`;
  const help = new Option("--help", "show how it is used");
  const choices = command.registeredArguments.flatMap(({ argChoices }) => argChoices ?? []);
  const words: Word[] = [
    ...choices.map((text) => ({ text, about: "", takesValue: false })),
    ...command.commands.map((one) => ({ text: one.name(), about: one.description(), takesValue: false })),
    ...[...command.options, help].map(({ long, description, required }) => ({
      text: long ?? "",
      about: description,
      takesValue: required,
    })),
  ];
  return [{ path, words }, ...command.commands.flatMap((one) => placesIn(one, `${path} `))];
}

const SCRIPTS: Readonly<Record<string, (places: readonly Place[]) => string>> = {
  bash: (places) => `_todo() {
  local cur=\${COMP_WORDS[COMP_CWORD]} prev=\${COMP_WORDS[COMP_CWORD-1]} at=todo word
  COMPREPLY=()
  for word in "\${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
    case "$at $word" in
      ${paths(places)}) at="$at $word" ;;
    esac
  done
  case $prev in
    ${valued(places)}) return ;;
  esac
  case $at in
${places.map(({ path, words }) => `    "${path}") COMPREPLY=($(compgen -W "${texts(words)}" -- "$cur")) ;;\n`).join("")}  esac
}
complete -o default -F _todo todo
`,

  zsh: (places) => `#compdef todo
_todo() {
  local at=todo word
  local -a found
  for word in "\${(@)words[2,CURRENT-1]}"; do
    case "$at $word" in
      ${paths(places)}) at="$at $word" ;;
    esac
  done
  case $words[CURRENT-1] in
    ${valued(places)}) _files; return ;;
  esac
  case $at in
${places.map(({ path, words }) => `    "${path}") found=(${words.map(zshWord).join(" ")}) ;;\n`).join("")}  esac
  _describe todo found || _files
}
compdef _todo todo
`,

  fish: (places) => `function __todo_at
  set -l at todo
  for word in (commandline -opc)[2..]
    switch "$at $word"
      case ${places
        .slice(1)
        .map(({ path }) => quoted(path))
        .join(" ")}
        set at "$at $word"
    end
  end
  test "$at" = "$argv[1]"
end
${places.flatMap(({ path, words }) => words.map((word) => fishLine(path, word))).join("")}`,
};

/** The commands below the first, as a pattern of the shells. */
const paths = (places: readonly Place[]): string =>
  places
    .slice(1)
    .map(({ path }) => `"${path}"`)
    .join("|");

const valued = (places: readonly Place[]): string =>
  [
    ...new Set(
      places.flatMap(({ words }) => words.filter(({ takesValue }) => takesValue).map(({ text }) => text)),
    ),
  ].join("|");

const texts = (words: readonly Word[]): string => words.map(({ text }) => text).join(" ");

const zshWord = ({ text, about }: Word): string => quoted(`${text}:${about}`);

function fishLine(path: string, { text, about, takesValue }: Word): string {
  const word = text.startsWith("--") ? `-l ${text.slice(2)}${takesValue ? " -r" : ""}` : `-f -a ${text}`;
  return `complete -c todo -n ${quoted(`__todo_at ${quoted(path)}`)} ${word} -d ${quoted(about)}\n`;
}

/** A single word for every one of the shells: a quote ends it, stands alone, and begins it again. */
const quoted = (text: string): string => `'${text.replaceAll("'", `'"'"'`)}'`;
