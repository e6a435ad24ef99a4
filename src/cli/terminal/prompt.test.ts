import { describe, expect, test } from "bun:test";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { copyWithCheapHashes } from "../../../test/patched-copy.ts";
import { skipFor } from "../../../test/skip.ts";
import { filesIn, temporaryFolder } from "../../../test/temporary.ts";
import { openTerminal, whyNoTerminal } from "../../../test/terminal.ts";
import { parseUsers } from "../../credential/user.ts";

const folder = temporaryFolder();

const main = await copyWithCheapHashes(join(folder, "program"));

const newPath = filesIn(folder);
/** Runs `todo users add alice` in a terminal. Types the next text at each prompt. */
async function type(...texts: readonly string[]) {
  const file = newPath();
  const settings = (when: string) => `stty -a > "$TODO_USERS_FILE.${when}"`;
  const add = `"$BUN" --no-env-file "${main}" users add alice; code=$?`;
  const line = `${settings("before")}; ${add}; ${settings("after")}; exit $code`;
  await using terminal = openTerminal(line, { TODO_USERS_FILE: file });
  for (const [index, text] of texts.entries()) {
    await terminal.shows(["Password: ", "Again: "][index] ?? "");
    terminal.type(text);
  }
  const code = await terminal.exited;
  const [before, after] = ["before", "after"].map((when) => readFileSync(`${file}.${when}`, "utf8"));
  return { shown: terminal.shown(), code, isRestored: before === after, file };
}

describe.concurrent("a password typed in a terminal", () => {
  test.skipIf(skipFor(whyNoTerminal)).each<[what: string, texts: readonly string[], password: string]>([
    ["is read as typed", ["hunter22\r", "hunter22\r"], "hunter22"],
    ["may be pasted", ["hunter22\rhunter22\r"], "hunter22"],
    ["may be corrected", ["hunnn\x7f\x7fter22\r", "x\x15hunter22\r"], "hunter22"],
    ["may contain any characters and blanks", [" Zoë 😀 2 \r", " Zoë 😀 2 \r"], " Zoë 😀 2 "],
    ["cannot be suspended with Ctrl-Z", ["hun\x1ater22\r", "hunter22\r"], "hunter22"],
  ])("%s, and is not shown", async (_what, texts, password) => {
    const { shown, code, isRestored, file } = await type(...texts);
    expect([shown, code, isRestored]).toEqual(["Password: \nAgain: \nadded alice\n", 0, true]);
    const hash = parseUsers(readFileSync(file, "utf8")).get("alice") ?? "";
    expect(await Bun.password.verify(password, hash)).toBe(true);
  });

  test
    .skipIf(skipFor(whyNoTerminal))
    .each<[what: string, texts: readonly string[], code: number, shown: string]>([
      ["that differs at the second prompt", ["hunter22\r", "hunter33\r"], 2, "the two passwords differ;"],
      ["that is empty", ["\r", "\r"], 2, "nothing was entered; nothing was changed"],
      ["that is too long", [`${"x".repeat(73)}\r`, `${"x".repeat(73)}\r`], 2, "must have at most 72 bytes"],
      ["that is missing", ["\x04"], 2, "nothing was entered; nothing was changed"],
      ["that Ctrl-C interrupts", ["hunter22\x03"], 130, "interrupted"],
      ["that Ctrl-C interrupts at the second prompt", ["hunter22\r", "hun\x03"], 130, "interrupted"],
    ])("%s changes nothing, and restores the terminal", async (_what, texts, code, said) => {
    const typed = await type(...texts);
    expect([typed.code, typed.isRestored]).toEqual([code, true]);
    const shown = Bun.stripANSI(typed.shown.replace(/(?:Password|Again): \n/g, ""));
    expect(shown).toMatch(/^todo: .*\n$/);
    expect(shown).toContain(said);
    expect(shown).not.toMatch(/hunter|xxx/);
    expect(existsSync(typed.file)).toBe(false);
  });
});
