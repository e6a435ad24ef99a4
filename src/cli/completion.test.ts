import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { runTodo } from "../../test/command.ts";
import {
  CASES,
  ID_CASES,
  outputLines,
  outputLinesWith,
  startWithTitles,
  writeCompletion,
} from "../../test/completion.ts";
import { skipFor } from "../../test/skip.ts";
import { whyMissing } from "../../test/tools.ts";

const folder = await mkdtemp(join(tmpdir(), "todo-completion-"));
afterAll(() => rm(folder, { recursive: true }));

describe.skipIf(skipFor(whyMissing("bash")))("completion in bash", () => {
  let file: string;
  beforeAll(async () => {
    file = await writeCompletion("bash", folder);
  });

  const completed = (words: readonly string[]): Promise<string[]> => {
    const line = `source "$0"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _todo; printf '%s\\n' "\${COMPREPLY[@]}"`;
    return outputLines("bash", "-c", line, file, ...words);
  };

  test.each(CASES)("completes %j to %j", async (words, found) => {
    expect((await completed(words)).toSorted()).toEqual([...found]);
  });

  const completedIds = (url: string, words: readonly string[]): Promise<string[]> => {
    const line = `source "$0"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMP_LINE="$*"; _todo; printf '%s\\n' "\${COMPREPLY[@]}"`;
    return outputLinesWith({ TODO_URL: url }, ["bash", "-c", line, file, ...words]);
  };

  test.each(ID_CASES)("completes %j to the ids %j", async (words, found) => {
    await using service = await startWithTitles();
    expect(await completedIds(service.url, words)).toEqual([...found]);
  });

  test("completes ids of the service that --url names", async () => {
    await using service = await startWithTitles();
    const words = ["todo", "undo", "--url", service.url, ""];
    expect(await completedIds("http://127.0.0.1:1", words)).toEqual(["2"]);
  });

  test("completes no ids, and prints nothing, if the service does not respond", async () => {
    expect(await completedIds("http://127.0.0.1:1", ["todo", "rm", ""])).toEqual([]);
  });

  test("completes the values of options with file names", async () => {
    expect(await completed(["todo", "backup", "--store", ""])).toEqual([]);
  });
});

test("completion does not offer the command that its scripts call", async () => {
  await using help = runTodo(["--help"]);
  await using script = runTodo(["completion", "bash"]);
  expect([await help.exited, await script.exited]).toEqual([0, 0]);
  expect(help.stdout()).not.toContain("__complete");
  expect(script.stdout()).not.toContain('"todo __complete"');
});

test("completion rejects an unknown shell", async () => {
  await using command = runTodo(["completion", "tcsh"]);
  expect([await command.exited, command.stdout()]).toEqual([2, ""]);
  expect(command.stderr()).toContain("Allowed choices are bash, zsh, fish");
});
