import { expect } from "bun:test";
import { join } from "node:path";
import { run, runTodo } from "./command.ts";

/** Typed words, and the expected candidates for the last of them. */
export const CASES: [words: readonly string[], found: readonly string[]][] = [
  [["todo", "wa"], ["watch"]],
  [["todo", "mig"], ["migrate"]],
  [["todo", "export", "--w"], ["--with-keys"]],
  [
    ["todo", "keys", "r"],
    ["rename", "revoke", "rotate"],
  ],
  [["todo", "list", "--d"], ["--done"]],
  [["todo", "keys", "create", "--e"], ["--expires"]],
  [["todo", "completion", "f"], ["fish"]],
  [
    ["todo", "do"],
    ["doctor", "done"],
  ],
  [["todo", "doctor", "--tls-c"], ["--tls-cert"]],
  [["todo", "add", "keys", "--b"], ["--batch"]],
];

/** Writes the completion script for a shell into a folder. Returns its path. */
export async function writeCompletion(shell: string, folder: string): Promise<string> {
  await using command = runTodo(["completion", shell]);
  expect([await command.exited, command.stderr()]).toEqual([0, ""]);
  const path = join(folder, `todo.${shell}`);
  await Bun.write(path, command.stdout());
  return path;
}

/** Runs a command line. Returns the lines of its output that are not blank. */
export async function outputLines(...commandLine: readonly string[]): Promise<string[]> {
  await using shell = run(commandLine);
  expect([await shell.exited, shell.stderr()]).toEqual([0, ""]);
  return shell
    .stdout()
    .split(/\s*\n/)
    .filter((line) => line !== "");
}
