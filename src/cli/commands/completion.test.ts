import { beforeAll, describe, expect, test } from "bun:test";
import { callTodo } from "../../../test/call-todo.ts";
import { CASES, outputLines, writeCompletion } from "../../../test/completion.ts";
import { skipFor } from "../../../test/skip.ts";
import { temporaryFolder } from "../../../test/temporary.ts";
import { whyMissing } from "../../../test/tools.ts";

const folder = temporaryFolder();

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

  test("completes the values of options with file names", async () => {
    expect(await completed(["todo", "backup", "--store", ""])).toEqual([]);
  });
});

test("completion rejects an unknown shell", async () => {
  const { code, stdout, stderr } = await callTodo(["completion", "tcsh"]);
  expect([code, stdout]).toEqual([2, ""]);
  expect(stderr).toContain("Allowed choices are bash, zsh, fish");
});
