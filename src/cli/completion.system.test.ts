import { afterAll, describe, expect, test } from "bun:test";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import {
  CASES,
  ID_CASES,
  ID_TITLES,
  outputLines,
  outputLinesWith,
  startWithTitles,
  writeCompletion,
} from "../../test/completion.ts";
import { skipFor } from "../../test/skip.ts";
import { openTerminal, whyNoTerminal } from "../../test/terminal.ts";
import { whyMissing } from "../../test/tools.ts";

const folder = await mkdtemp(join(tmpdir(), "todo-completion-"));
afterAll(() => rm(folder, { recursive: true }));

describe.skipIf(skipFor(whyMissing("fish")))("completion in fish", () => {
  test.each(CASES)("completes %j to %j", async (words, found) => {
    const file = await writeCompletion("fish", folder);
    const line = `source "${file}"; complete -C '${words.join(" ")}'`;
    const lines = await outputLines("fish", "--no-config", "-c", line);
    expect(lines.map((line) => line.split("\t")[0]).toSorted()).toEqual([...found]);
  });
});

describe.skipIf(skipFor(whyMissing("fish")))("completion of ids in fish", () => {
  test.each(ID_CASES)("completes %j to %j, with titles", async (words, found) => {
    await using service = await startWithTitles();
    const file = await writeCompletion("fish", folder);
    const line = `source "${file}"; complete -C '${words.join(" ")}'`;
    const commandLine = ["fish", "--no-config", "-c", line];
    const lines = await outputLinesWith({ TODO_URL: service.url }, commandLine);
    expect(lines.map((line) => line.split("\t")[0])).toEqual([...found]);
    for (const line of lines) {
      const [id, title] = line.split("\t");
      if (!id?.startsWith("-")) expect(title).toBe(ID_TITLES[Number(id) - 1]);
    }
  });
});

test.skipIf(skipFor(whyMissing("zsh") ?? whyNoTerminal))(
  "completion in zsh completes the typed word",
  async () => {
    const file = await writeCompletion("zsh", folder);
    await using terminal = openTerminal("zsh -f -i");
    const dump = join(folder, "dump");
    terminal.type(`autoload -Uz compinit; compinit -u -d "${dump}"; todo() { print did:$*: }\n`);
    terminal.type(`source "${file}"; print rea''dy\n`);
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

test.skipIf(skipFor(whyMissing("zsh") ?? whyNoTerminal))(
  "completion in zsh completes ids and shows their titles",
  async () => {
    await using service = await startWithTitles();
    const file = await writeCompletion("zsh", folder);
    await using terminal = openTerminal("zsh -f -i", { TODO_URL: service.url });
    const bin = fileURLToPath(new URL("../../bin", import.meta.url));
    terminal.type(
      `autoload -Uz compinit; compinit -u -d "${join(folder, "dump-ids")}"; path=("${bin}" $path)\n`,
    );
    terminal.type(`source "${file}"; print rea''dy\n`);
    await terminal.shows("ready");
    terminal.type("todo undo \t\n");
    await terminal.shows("2  [ ]  $(echo owned");
    terminal.type("todo show \t");
    for (const shown of ["-- buy: milk", "-- $(echo owned", '"y" \\z %F{re', "-- 日本語"])
      await terminal.shows(shown);
    expect(terminal.shown()).not.toMatch(/^owned/m);
  },
);
