import { describe, expect, test } from "bun:test";
import { runTodo } from "../../test/command.ts";
import { startService, type TestService } from "../../test/service.ts";
import { skipFor } from "../../test/skip.ts";
import { openTerminal, whyNoTerminal } from "../../test/terminal.ts";
import { whyMissing } from "../../test/tools.ts";

const LIST = '"$BUN" --no-env-file src/cli/main.ts list';
const MARK = { TODO_PAGER: "sed 's/^/paged /'" };
/** The terminals of these tests have 20 rows. */
const LONG = 20;

async function startWith(todos: number): Promise<TestService> {
  const service = startService();
  for (let n = 1; n <= todos; n++) await service.sendJson("POST", "/api/todos", { title: `to-do ${n}` });
  return service;
}

const listOf = (todos: number, before = ""): string =>
  Array.from({ length: todos }, (_, at) => {
    const id = String(at + 1);
    return `${before}${id.padStart(String(todos).length)}  [ ]  to-do ${id}\n`;
  }).join("");

async function shown(service: TestService, line: string, variables: Readonly<Record<string, string>>) {
  await using terminal = openTerminal(line, { TODO_URL: service.url, ...variables });
  expect(await terminal.exited).toBe(0);
  return terminal.shown();
}

describe.skipIf(skipFor(whyNoTerminal))("todo list on a terminal", () => {
  test.each<[what: string, variables: Readonly<Record<string, string>>]>([
    ["TODO_PAGER", MARK],
    ["PAGER", { PAGER: MARK.TODO_PAGER }],
    ["TODO_PAGER rather than PAGER", { ...MARK, PAGER: "sed 's/^/wrong /'" }],
  ])("shows more than one screen with %s", async (_what, variables) => {
    await using service = await startWith(LONG);
    expect(await shown(service, LIST, variables)).toBe(listOf(LONG, "paged "));
  });

  test("shows one screen without the pager", async () => {
    await using service = await startWith(LONG - 1);
    expect(await shown(service, LIST, MARK)).toBe(listOf(LONG - 1));
  });

  test.each(["--no-pager", "--json"])(
    "shows more than one screen without the pager with %s",
    async (flag) => {
      await using service = await startWith(LONG);
      const text = await shown(service, `${LIST} ${flag}`, MARK);
      expect(text).not.toContain("paged");
      expect(text.split("\n")).toHaveLength(LONG + 1);
    },
  );

  test("shows the list without the pager if the pager cannot run or if TERM is dumb", async () => {
    await using service = await startWith(LONG);
    const text = await shown(service, LIST, { PAGER: "no-such-pager" });
    expect(text).toEndWith(listOf(LONG));
    expect(text).toContain("no-such-pager");
    expect(await shown(service, LIST, { ...MARK, TERM: "dumb" })).toBe(listOf(LONG));
  });

  test("shows the list if less is not installed", async () => {
    await using service = await startWith(LONG);
    expect(await shown(service, `PATH=/nonexistent; ${LIST}`, {})).toBe(listOf(LONG));
  });

  test("passes options for less to the pager, but not the token", async () => {
    await using service = await startWith(LONG);
    const variables = { TODO_TOKEN: "t0ken", TODO_PAGER: 'echo "$LESS:$TODO_TOKEN:$TODO_URL"' };
    expect(await shown(service, LIST, variables)).toBe("FRX::\n");
    expect(await shown(service, LIST, { ...variables, LESS: "-M" })).toBe("-M::\n");
  });

  test("exits with 0 if the pager ends before it has read the complete list", async () => {
    await using service = await startWith(2000);
    expect(await shown(service, LIST, { PAGER: "head -n 1" })).toBe("   1  [ ]  to-do 1\n");
  });
});

describe.skipIf(skipFor(whyNoTerminal ?? whyMissing("less")))("todo list in less", () => {
  test("shows colors and the first screen, and exits with 0 after q", async () => {
    await using service = await startWith(200);
    await service.sendJson("PATCH", "/api/todos/2", { done: true });
    await using terminal = openTerminal(`exec ${LIST}`, { TODO_URL: service.url });
    await terminal.shows("to-do 19");
    expect(terminal.shown()).toContain("\x1b[2m  2  [x]  to-do 2\x1b");
    expect(terminal.shown()).not.toContain("to-do 25");
    // Ctrl-C is for less, and must not end the command. A terminal discards what was typed right after it.
    terminal.type("\x03");
    while (!terminal.shown().includes("to-do 25")) {
      terminal.type(" ");
      await Bun.sleep(50);
    }
    terminal.type("q");
    expect(await terminal.exited).toBe(0);
  });
});

test("todo list in a pipe uses no pager", async () => {
  await using service = await startWith(LONG);
  await using command = runTodo(["list"], { TODO_URL: service.url, TERM: "xterm", ...MARK });
  expect([await command.exited, command.stderr()]).toEqual([0, ""]);
  expect(command.stdout().split("\n")).toHaveLength(LONG + 1);
  expect(command.stdout()).not.toContain("paged");
});
