import { expect } from "bun:test";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { run, runTodo } from "./command.ts";
import { startService, type TestService } from "./service.ts";

/** Typed words, and the expected candidates for the last of them. */
export const CASES: [words: readonly string[], found: readonly string[]][] = [
  [["todo", "wa"], ["watch"]],
  [["todo", "mig"], ["migrate"]],
  [["todo", "export", "--w"], ["--with-keys"]],
  [
    ["todo", "keys", "r"],
    ["revoke", "rotate"],
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

/** Typed words, and the ids expected for the last of them with three to-dos, of which the second is done. */
export const ID_CASES: [words: readonly string[], found: readonly string[]][] = [
  [
    ["todo", "show", ""],
    ["1", "2", "3"],
  ],
  [
    ["todo", "done", ""],
    ["1", "3"],
  ],
  [["todo", "undo", ""], ["2"]],
  [["todo", "rm", "1", "3"], ["3"]],
  [["todo", "done", "--js"], ["--json"]],
];

/** The titles of the three to-dos. The middle one would run a command if a shell evaluated it. */
export const ID_TITLES = ["buy: milk", "$(echo owned >&2) `echo owned >&2` 'x' \"y\" \\z %F{red}", "日本語"];

/** Starts a service with these to-dos. */
export async function startWithTitles(): Promise<TestService> {
  const service = startService();
  for (const title of ID_TITLES) await service.sendJson("POST", "/api/todos", { title });
  await service.sendJson("PATCH", "/api/todos/2", { done: true });
  return service;
}

/** Writes the completion script for a shell into a folder. Returns its path. */
export async function writeCompletion(shell: string, folder: string): Promise<string> {
  await using command = runTodo(["completion", shell]);
  expect([await command.exited, command.stderr()]).toEqual([0, ""]);
  const path = join(folder, `todo.${shell}`);
  await Bun.write(path, command.stdout());
  return path;
}

/** Runs a command line. Returns the lines of its output that are not blank. */
export function outputLines(...commandLine: readonly string[]): Promise<string[]> {
  return outputLinesWith({}, commandLine);
}

/** Does the same with these variables, and with `todo` in the PATH. */
export async function outputLinesWith(
  variables: Readonly<Record<string, string>>,
  commandLine: readonly string[],
): Promise<string[]> {
  const PATH = `${fileURLToPath(new URL("../bin", import.meta.url))}:${process.env.PATH}`;
  await using shell = run(commandLine, { PATH, ...variables });
  expect([await shell.exited, shell.stderr()]).toEqual([0, ""]);
  return shell
    .stdout()
    .split(/\s*\n/)
    .filter((line) => line !== "");
}
