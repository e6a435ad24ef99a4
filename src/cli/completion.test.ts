import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from "bun:test";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { run, runTodo } from "../../test/command.ts";
import { openTerminal, whyNoTerminal } from "../../test/terminal.ts";

setDefaultTimeout(20_000);
const folder = mkdtempSync(join(tmpdir(), "todo-completion-"));
afterAll(() => rmSync(folder, { recursive: true }));

const SHELLS = ["bash", "zsh", "fish"] as const;
const isThere = (shell: string): boolean => Bun.which(shell) !== null;
for (const shell of SHELLS) {
  if (!isThere(shell)) process.stderr.write(`skipped: completion in ${shell}, which is not there\n`);
}

const fileOf = (shell: string): string => join(folder, `todo.${shell}`);
beforeAll(async () => {
  for (const shell of SHELLS) {
    await using command = runTodo(["completion", shell]);
    expect([await command.exited, command.stderr()]).toEqual([0, ""]);
    writeFileSync(fileOf(shell), command.stdout());
  }
});

async function said(...commandLine: readonly string[]): Promise<string[]> {
  await using shell = run(commandLine);
  expect([await shell.exited, shell.stderr()]).toEqual([0, ""]);
  return shell
    .stdout()
    .split(/\s*\n/)
    .filter((line) => line !== "");
}

const inBash = (words: readonly string[]): Promise<string[]> => {
  const line = `source "$0"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _todo; printf '%s\\n' "\${COMPREPLY[@]}"`;
  return said("bash", "-c", line, fileOf("bash"), ...words);
};
const inFish = async (words: readonly string[]): Promise<string[]> => {
  const lines = await said(
    "fish",
    "--no-config",
    "-c",
    `source ${fileOf("fish")}; complete -C '${words.join(" ")}'`,
  );
  return lines.map((line) => line.split("\t")[0] ?? "");
};

const CASES: [words: readonly string[], found: readonly string[]][] = [
  [["todo", "wa"], ["watch"]],
  [
    ["todo", "keys", "r"],
    ["revoke", "rotate"],
  ],
  [["todo", "list", "--d"], ["--done"]],
  [["todo", "keys", "create", "--e"], ["--expires"]],
  [["todo", "completion", "f"], ["fish"]],
  [["todo", "add", "keys", "--b"], ["--batch"]],
];

describe("completion", () => {
  test.skipIf(!isThere("bash")).each(CASES)("in bash of %j is %j", async (words, found) => {
    expect((await inBash(words)).toSorted()).toEqual([...found]);
  });

  test.skipIf(!isThere("bash"))("in bash of an option's value is left to files", async () => {
    expect(await inBash(["todo", "backup", "--store", ""])).toEqual([]);
  });

  test.skipIf(!isThere("fish")).each(CASES)("in fish of %j is %j", async (words, found) => {
    expect((await inFish(words)).toSorted()).toEqual([...found]);
  });

  test.skipIf(!isThere("zsh") || whyNoTerminal !== undefined)(
    "in zsh goes on with what is typed",
    async () => {
      await using terminal = openTerminal("zsh -f -i");
      terminal.type(
        "autoload -Uz compinit; compinit -u -d $ZDUMP; todo() { print did:$*: }\n".replace(
          "$ZDUMP",
          join(folder, "dump"),
        ),
      );
      terminal.type(`source ${fileOf("zsh")}; print rea''dy\n`);
      await terminal.shows("ready");
      for (const [words, typed] of [
        ["wa", "watch"],
        ["keys cr", "keys create"],
        ["keys create --e", "keys create --expires"],
        ["list --d", "list --done"],
      ] as const) {
        terminal.type(`todo ${words}\t\n`);
        await terminal.shows(`did:${typed}:`);
      }
    },
  );

  test("knows no other shell", async () => {
    await using command = runTodo(["completion", "tcsh"]);
    expect([await command.exited, command.stdout()]).toEqual([2, ""]);
    expect(command.stderr()).toContain("Allowed choices are bash, zsh, fish");
  });
});
