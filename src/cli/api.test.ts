import { afterAll, describe, expect, test } from "bun:test";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { ROOT, runTodo } from "../../test/command.ts";
import { startService, type TestService } from "../../test/service.ts";
import { skipFor } from "../../test/skip.ts";
import { openTerminal, whyNoTerminal } from "../../test/terminal.ts";

const folder = await mkdtemp(join(tmpdir(), "todo-api-"));
afterAll(() => rm(folder, { recursive: true }));

const TOKEN = "t0ken";
const start = (): TestService =>
  startService({ lookupClient: (token) => (token === TOKEN ? { name: "alice" } : undefined) });

/** Runs `todo api` with pipes instead of a terminal. Returns its exit code and output. */
async function api(
  url: string,
  args: readonly string[],
  variables: Readonly<Record<string, string>> = {},
  input?: string,
) {
  await using command = runTodo(["api", ...args], { TODO_URL: url, ...variables }, input);
  return { code: await command.exited, out: command.stdout(), error: command.stderr() };
}

describe("todo api", () => {
  test("prints the response body without changes", async () => {
    await using service = start();
    const body = { title: "caf\u00e9 \u009b31m" };
    await service.sendJson("POST", "/api/todos", body);
    const expected = await (await service.send("GET", "/api/todos?done=false")).text();
    for (const method of ["GET", "get"])
      expect(await api(service.url, [method, "/api/todos?done=false"])).toEqual({
        code: 0,
        out: expected,
        error: "",
      });
  });

  test("sends --data as JSON from the argument, a file or standard input", async () => {
    await using service = start();
    const file = join(folder, "body.json");
    await Bun.write(file, '{"title":"from a file"}');
    for (const [data, input] of [
      ['{"title":"from the argument"}', undefined],
      [`@${file}`, undefined],
      ["-", '{"title":"from standard input"}'],
    ] as const) {
      const { code, error } = await api(service.url, ["POST", "/api/todos", "--data", data], {}, input);
      expect([code, error]).toEqual([0, ""]);
    }
    expect((await api(service.url, ["PATCH", "/api/todos/2", "--data", '{"done":true}'])).code).toBe(0);
    expect((await api(service.url, ["DELETE", "/api/todos/1"])).out).toBe("");
    const todos = await (await service.send("GET", "/api/todos")).json();
    expect(todos).toEqual([
      { id: 2, title: "from a file", done: true },
      { id: 3, title: "from standard input", done: false },
    ]);
  });

  test("--include prints the status and the headers before the body", async () => {
    await using service = start();
    const { code, out } = await api(service.url, ["GET", "/api/todos", "--include"]);
    expect(code).toBe(0);
    expect(out).toMatch(/^HTTP\/1\.1 200 OK\n(?:[\w-]+: .*\n)+\n\[\]$/);
    expect(out).toContain("\ncontent-type: application/json");
    const head = await api(service.url, ["HEAD", "/api/todos", "--include"]);
    expect([head.code, head.out.endsWith("\n\n")]).toEqual([0, true]);
  });

  test("sends TODO_TOKEN to the service", async () => {
    await using service = start();
    expect(await api(service.url, ["GET", "/api/whoami"], { TODO_TOKEN: TOKEN })).toEqual({
      code: 0,
      out: "alice",
      error: "",
    });
  });

  test("never sends the token to another origin, even after a redirect", async () => {
    const seen: (string | null)[] = [];
    const other = Bun.serve({
      hostname: "127.0.0.1",
      port: 0,
      fetch: ({ headers }) => {
        seen.push(headers.get("authorization"));
        return new Response("other");
      },
    });
    const redirecting = Bun.serve({
      hostname: "127.0.0.1",
      port: 0,
      fetch: () => Response.redirect(`${other.url.href}x`, 307),
    });
    try {
      const path = `127.0.0.1:${other.port}/x`;
      for (const target of [`http://${path}`, `@${path}`, path, "api/todos", ""]) {
        const { code, error } = await api(redirecting.url.href, ["GET", target], { TODO_TOKEN: TOKEN });
        expect([code, error]).toEqual([2, expect.stringContaining("start it with a slash")]);
      }
      for (const target of [`//${path}`, `/\\${path}`, "/"]) {
        const { code, error } = await api(redirecting.url.href, ["GET", target], { TODO_TOKEN: TOKEN });
        expect([code, error]).toEqual([1, expect.stringContaining("does not follow redirects")]);
      }
    } finally {
      await redirecting.stop(true);
      await other.stop(true);
    }
    expect(seen).toEqual([]);
  });

  test.each<
    [
      what: string,
      args: readonly string[],
      variables: Readonly<Record<string, string>>,
      code: number,
      says: string,
    ]
  >([
    ["an absent to-do", ["GET", "/api/todos/9"], {}, 3, "status 404 Not Found"],
    ["a missing token", ["GET", "/api/whoami"], {}, 4, "TODO_TOKEN is not set"],
    ["a wrong token", ["GET", "/api/whoami"], { TODO_TOKEN: "x" }, 4, "the token in TODO_TOKEN is not valid"],
    ["an invalid body", ["POST", "/api/todos", "--data", "{"], {}, 1, "status 400 Bad Request"],
  ])(
    "prints the response to %s, and exits with the matching code",
    async (_what, args, variables, code, says) => {
      await using service = start();
      const said = await api(service.url, args, variables);
      expect([said.code, said.error]).toEqual([code, expect.stringMatching(/^todo: [^\n]*\n$/)]);
      expect(said.error).toContain(says);
      expect(JSON.parse(said.out)).toMatchObject({ code: expect.any(String) });
    },
  );

  test.each<[what: string, args: readonly string[], code: number, says: string]>([
    ["an unknown method", ["FETCH", "/"], 2, '"FETCH" is not a method: use one of GET,'],
    ["a body of a GET request", ["GET", "/", "--data", "{}"], 2, "a GET request has no body"],
    [
      "a missing file",
      ["POST", "/", "--data", `@${join(folder, "missing")}`],
      2,
      "missing: no such file or folder",
    ],
    [
      "a service that is not running",
      ["GET", "/", "--url", "http://127.0.0.1:1"],
      1,
      "is the service running? Check --url\n",
    ],
  ])("reports %s with a hint", async (_what, args, code, says) => {
    const said = await api("http://127.0.0.1:1", args);
    expect([said.code, said.out, said.error]).toEqual([code, "", expect.stringContaining(says)]);
  });

  test("exits with 0 and without a message when the reader of the pipe closes it", async () => {
    await using service = start();
    const title = "x".repeat(100);
    for (let n = 0; n < 2000; n++) await service.sendJson("POST", "/api/todos", { title });
    const line = `"${process.execPath}" --no-env-file src/cli/main.ts api GET /api/todos | head -c 1; echo "\${PIPESTATUS[0]}"`;
    const child = Bun.spawn(["bash", "-c", line], {
      cwd: ROOT,
      env: { PATH: process.env.PATH, TODO_URL: service.url },
      stderr: "pipe",
    });
    expect([await child.stdout.text(), await child.stderr.text()]).toEqual(["[0\n", ""]);
  });

  test("prints events immediately when they arrive, until Ctrl-C", async () => {
    await using service = start();
    await using command = runTodo(["api", "GET", "/api/events"], { TODO_URL: service.url });
    // Nothing shows when the stream is open, so add to-dos until it prints one.
    while (!command.stdout().includes("created")) {
      await service.sendJson("POST", "/api/todos", { title: "a" });
      await Bun.sleep(200);
    }
    command.kill("SIGINT");
    expect([await command.exited, command.stderr()]).toEqual([130, ""]);
  });

  test.skipIf(skipFor(whyNoTerminal))("escapes control characters on a terminal", async () => {
    await using service = start();
    await service.sendJson("POST", "/api/todos", { title: "\x1b]0;owned\x07 \u202egpj.exe \x9b31m" });
    const line = '"$BUN" --no-env-file src/cli/main.ts api GET /api/todos/1';
    await using terminal = openTerminal(line, { TODO_URL: service.url });
    expect(await terminal.exited).toBe(0);
    expect(terminal.shown()).toBe(
      '{"id":1,"title":"\\u001b]0;owned\\u0007 \\u202egpj.exe \\u009b31m","done":false}\n',
    );
  });
});
