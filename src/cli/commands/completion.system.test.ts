import { describe, expect, test } from "bun:test";
import { join } from "node:path";
import { CASES, outputLines, writeCompletion } from "../../../test/completion.ts";
import { skipFor } from "../../../test/skip.ts";
import { temporaryFolder } from "../../../test/temporary.ts";
import { openTerminal, whyNoTerminal } from "../../../test/terminal.ts";
import { whyMissing } from "../../../test/tools.ts";

const folder = temporaryFolder();

describe.skipIf(skipFor(whyMissing("fish")))("completion in fish", () => {
  test.each(CASES)("completes %j to %j", async (words, found) => {
    const file = await writeCompletion("fish", folder);
    const line = `source "${file}"; complete -C '${words.join(" ")}'`;
    const lines = await outputLines("fish", "--no-config", "-c", line);
    expect(lines.map((line) => line.split("\t")[0]).toSorted()).toEqual([...found]);
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
