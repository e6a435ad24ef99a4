import { Argument, type Command, type Option } from "commander";
import type { CommandProcess } from "../terminal/output.ts";

/** Adds `todo completion`. */
export function addCompletionCommands(program: Command, process: CommandProcess): void {
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
  readonly words: readonly string[];
  /** Those of the words that are options followed by a value. */
  readonly valueOptions: readonly string[];
}

function commandSpecs(command: Command, above = ""): CommandSpec[] {
  const path = `${above}${command.name()}`;
  const choices = command.registeredArguments.flatMap(({ argChoices }) => argChoices ?? []);
  const long = (options: readonly Option[]) => options.flatMap((option) => option.long ?? []);
  const valueOptions = long(command.options.filter(({ required }) => required));
  const subcommands = command.commands.map((one) => one.name());
  const words = [...choices, ...subcommands, ...long(command.options), "--help"];
  return [{ path, words, valueOptions }, ...command.commands.flatMap((one) => commandSpecs(one, `${path} `))];
}

/** The script also works in zsh, below the line that makes it emulate the completion of bash. */
const bashScript = (specs: readonly CommandSpec[]): string => `_todo() {
  local cur=\${COMP_WORDS[COMP_CWORD]} prev=\${COMP_WORDS[COMP_CWORD-1]} at=todo word
  COMPREPLY=()
  for word in "\${COMP_WORDS[@]:1:$((COMP_CWORD-1))}"; do
    case "$at $word" in
      ${paths(specs).join("|")}) at="$at $word" ;;
    esac
  done
  case $prev in
    ${valueOptions(specs).join("|")}) return ;;
  esac
  case $at in
${specs.map(({ path, words }) => `    "${path}") COMPREPLY=($(compgen -W "${words.join(" ")}" -- "$cur")) ;;\n`).join("")}  esac
}
complete -o default -F _todo todo
`;

const fishScript = (specs: readonly CommandSpec[]): string => `function __todo_words
  set -l at todo
  set -l line (commandline -opc)
  for word in $line[2..]
    switch "$at $word"
      case ${paths(specs).join(" ")}
        set at "$at $word"
    end
  end
  set -l words
  contains -- $line[-1] ${valueOptions(specs).join(" ")}; or switch $at
${specs.map(({ path, words }) => `    case "${path}"\n      set words ${words.join(" ")}\n`).join("")}  end
  set -l found (string match -- (commandline -ct)"*" $words)
  and printf '%s\\n' $found
  or __fish_complete_path (commandline -ct)
end
complete -c todo -f -a "(__todo_words)"
`;

const SCRIPTS: Readonly<Record<string, (specs: readonly CommandSpec[]) => string>> = {
  bash: bashScript,
  zsh: (specs) => `autoload -U +X bashcompinit && bashcompinit\n${bashScript(specs)}`,
  fish: fishScript,
};

/** Returns the names of all subcommands as patterns. */
const paths = (specs: readonly CommandSpec[]): string[] => specs.slice(1).map(({ path }) => `"${path}"`);

const valueOptions = (specs: readonly CommandSpec[]): string[] => [
  ...new Set(specs.flatMap((spec) => spec.valueOptions)),
];
