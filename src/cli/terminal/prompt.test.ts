import { describe, expect, test } from "bun:test";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { ROOT } from "../../../test/command.ts";
import { copyWithCheapHashes } from "../../../test/patched-copy.ts";
import { skipFor } from "../../../test/skip.ts";
import { temporaryFolder } from "../../../test/temporary.ts";
import { whyNoTerminal } from "../../../test/terminal.ts";
import { parseUsers } from "../../credential/user.ts";

const folder = temporaryFolder();

const main = await copyWithCheapHashes(join(folder, "program"));

interface Typed {
  /** All output of the terminal. */
  readonly shown: string;
  readonly code: number;
  /** Whether the terminal's settings are the same as before. */
  readonly restored: boolean;
  readonly file: string;
}

let files = 0;
/** Runs `todo users add alice` in a terminal. Types the next text at each prompt. */
async function type(...texts: readonly string[]): Promise<Typed> {
  const file = join(folder, `users${++files}`);
  const lines = [
    'stty -a > "$TODO_USERS_FILE.before"',
    `"$BUN" --no-env-file "${main}" users add alice`,
    "code=$?",
    'stty -a > "$TODO_USERS_FILE.after"',
    "exit $code",
  ];
  const terminal = Bun.spawn(["script", "-qec", lines.join("; "), "/dev/null"], {
    cwd: ROOT,
    env: { PATH: process.env.PATH, HOME: process.env.HOME, BUN: process.execPath, TODO_USERS_FILE: file },
    stdin: "pipe",
    stdout: "pipe",
  });
  try {
    let shown = "";
    let typed = 0;
    const decoder = new TextDecoder();
    for await (const chunk of terminal.stdout) {
      shown += decoder.decode(chunk, { stream: true });
      const prompts = shown.match(/(?:Password|Again): /g)?.length ?? 0;
      for (; typed < Math.min(prompts, texts.length); typed++) {
        terminal.stdin.write(texts[typed] ?? "");
        terminal.stdin.flush();
      }
    }
    const settings = (when: string): string => readFileSync(`${file}.${when}`, "utf8");
    return { shown, code: await terminal.exited, restored: settings("before") === settings("after"), file };
  } finally {
    // When its terminal is closed, the program gets a SIGHUP.
    terminal.kill("SIGKILL");
  }
}

describe.concurrent("a password typed in a terminal", () => {
  test.skipIf(skipFor(whyNoTerminal)).each<[what: string, texts: readonly string[], password: string]>([
    ["is read as typed", ["hunter22\r", "hunter22\r"], "hunter22"],
    ["may be pasted", ["hunter22\rhunter22\r"], "hunter22"],
    ["may be corrected", ["hunnn\x7f\x7fter22\r", "x\x15hunter22\r"], "hunter22"],
    ["may contain any characters and blanks", [" Zoë 😀 2 \r", " Zoë 😀 2 \r"], " Zoë 😀 2 "],
    ["cannot be suspended with Ctrl-Z", ["hun\x1ater22\r", "hunter22\r"], "hunter22"],
  ])("%s, and is not shown", async (_what, texts, password) => {
    const { shown, code, restored, file } = await type(...texts);
    expect([shown, code]).toEqual(["Password: \r\nAgain: \r\nadded alice\r\n", 0]);
    expect(restored).toBe(true);
    const hash = parseUsers(readFileSync(file, "utf8")).get("alice") ?? "";
    expect(await Bun.password.verify(password, hash)).toBe(true);
  });

  test
    .skipIf(skipFor(whyNoTerminal))
    .each<[what: string, texts: readonly string[], code: number, shown: string]>([
      [
        "that differs at the second prompt",
        ["hunter22\r", "hunter33\r"],
        2,
        "the two passwords differ; nothing was changed",
      ],
      ["that is empty", ["\r", "\r"], 2, "nothing was entered; nothing was changed"],
      ["that is too long", [`${"x".repeat(73)}\r`, `${"x".repeat(73)}\r`], 2, "must have at most 72 bytes"],
      ["that is missing", ["\x04"], 2, "nothing was entered; nothing was changed"],
      ["that Ctrl-C interrupts", ["hunter22\x03"], 130, "interrupted"],
      ["that Ctrl-C interrupts at the second prompt", ["hunter22\r", "hun\x03"], 130, "interrupted"],
    ])("%s changes nothing, and restores the terminal", async (_what, texts, code, said) => {
    const typed = await type(...texts);
    expect([typed.code, typed.restored]).toEqual([code, true]);
    const shown = typed.shown.replace(/(?:Password|Again): \r\n/g, "");
    expect(shown).toMatch(/^todo: .*\r\n$/);
    expect(shown).toContain(said);
    expect(shown).not.toMatch(/hunter|xxx/);
    expect(existsSync(typed.file)).toBe(false);
  });
});
