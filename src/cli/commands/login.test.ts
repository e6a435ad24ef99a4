import { describe, expect, test } from "bun:test";
import { chmodSync, existsSync, mkdtempSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { callTodo, complaintOf } from "../../../test/call-todo.ts";
import { startService, type TestService } from "../../../test/service.ts";
import { skipFor } from "../../../test/skip.ts";
import { temporaryFolder } from "../../../test/temporary.ts";
import { openTerminal, whyNoTerminal } from "../../../test/terminal.ts";

const folder = temporaryFolder();

const TOKEN = "t0ken";
const startPrivate = (): TestService =>
  startService({
    access: { privateMode: true },
    credentials: { lookupClient: (token) => (token === TOKEN ? { name: "alice\x1b[31m" } : undefined) },
  });

function createHome() {
  const config = join(mkdtempSync(join(folder, "home-")), "config");
  const todo = (args: readonly string[], { input = "", ...variables }: Record<string, string> = {}) =>
    callTodo(args, { XDG_CONFIG_HOME: config, ...variables }, input);
  return {
    config,
    file: join(config, "todo-service", "login"),
    todo,
    login: (url: string, token = TOKEN) => todo(["login", url], { input: `${token}\n` }),
  };
}

const modeOf = (path: string): number => statSync(path).mode & 0o777;

describe("todo login", () => {
  test("stores the URL and the token for later commands, until todo logout removes them", async () => {
    await using service = startPrivate();
    const { file, todo, login } = createHome();
    const { stderr, stdout: said } = await login(`${service.url}/`);
    expect([stderr, said]).toEqual(["", `logged in to ${service.url} as alice<U+001B>[31m\n`]);
    expect([modeOf(file), modeOf(dirname(file))]).toEqual([0o600, 0o700]);
    expect((await todo(["add", "buy milk"])).stdout).toBe("added 1  [ ]  buy milk\n");
    expect((await todo(["list"], { TODO_URL: service.url })).code).toBe(0);
    expect((await todo(["list"], { TODO_TOKEN: "other" })).stderr).toContain(
      "the token in TODO_TOKEN is not valid",
    );
    const { code, stdout } = await todo(["logout"]);
    expect([code, stdout, existsSync(file)]).toEqual([0, expect.stringContaining(file), false]);
    expect((await todo(["list"], { TODO_URL: service.url })).stderr).toContain("TODO_TOKEN is not set");
    expect((await todo(["logout"])).code).toBe(2);
  });

  test("never sends the stored token to another URL", async () => {
    await using service = startPrivate();
    const received: (string | null)[] = [];
    const other = Bun.serve({
      hostname: "127.0.0.1",
      port: 0,
      fetch: ({ url, headers }) => {
        if (new URL(url).pathname === "/api/whoami") return new Response("alice");
        received.push(headers.get("Authorization"));
        return Response.json({ title: "Unauthorized", status: 401, code: "unauthorized" }, { status: 401 });
      },
    });
    const { todo, login } = createHome();
    await login(service.url);
    for (const args of [["list", "--url", other.url.href], ["list"]])
      expect((await todo(args, { TODO_URL: other.url.href })).code).toBe(4);
    await login(other.url.href);
    expect((await todo(["list", "--url", `${other.url.href}other`])).code).toBe(4);
    await other.stop(true);
    expect(received).toEqual([null, null, null]);
  });

  test("replaces the stored login only after the service has accepted the token", async () => {
    await using service = startPrivate();
    const { file, todo, login } = createHome();
    await login(service.url);
    expect(await complaintOf(login(service.url, "wrong"), 4)).toStartWith(
      "the token is not valid: run todo login",
    );
    expect(readFileSync(file, "utf8")).toContain(TOKEN);
    await using second = startPrivate();
    await login(second.url);
    expect((await todo(["list"], { TODO_URL: second.url })).code).toBe(0);
  });

  test.each<[what: string, url: string, token: string, code: number, says: string]>([
    ["a service that does not run", "http://127.0.0.1:1", TOKEN, 1, "is the service running? Check the URL"],
    ["plain HTTP to another machine", "http://192.0.2.1", TOKEN, 2, "over plain HTTP"],
    ["an invalid URL", "todo.example.com", TOKEN, 2, "the URL: must be the URL of a service"],
    ["an empty token", "http://127.0.0.1:1", "", 2, "nothing was entered; nothing was changed"],
  ])("rejects %s, and stores nothing", async (_what, url, token, code, says) => {
    const { config, login } = createHome();
    expect(await complaintOf(login(url, token), code)).toContain(says);
    expect(existsSync(config)).toBe(false);
  });

  test("rejects a stored token that other users can read", async () => {
    await using service = startPrivate();
    const { file, todo, login } = createHome();
    await login(service.url);
    chmodSync(file, 0o640);
    expect(await complaintOf(todo(["list"]))).toEndWith(`run chmod 600 ${file}`);
    expect((await todo(["list"], { TODO_URL: service.url, TODO_TOKEN: TOKEN })).code).toBe(0);
  });

  test("replaces and logout removes a damaged file, which other commands report", async () => {
    await using service = startPrivate();
    const { file, todo, login } = createHome();
    for (const repair of [["logout"], ["login", service.url]]) {
      await login(service.url);
      writeFileSync(file, `${service.url}\n`);
      const damaged = `${file} is damaged: run todo login URL again, or todo logout`;
      expect(await complaintOf(todo(["list"]))).toBe(damaged);
      expect((await todo(repair, { input: TOKEN })).code).toBe(0);
    }
    expect((await todo(["list"])).code).toBe(0);
  });

  test.skipIf(skipFor(whyNoTerminal))("asks for the token on a terminal and does not show it", async () => {
    await using service = startPrivate();
    const { config } = createHome();
    const line = `"$BUN" --no-env-file src/cli/main.ts login ${service.url}`;
    await using terminal = openTerminal(line, { XDG_CONFIG_HOME: config });
    await terminal.shows("Token: ");
    terminal.type(`${TOKEN}\r`);
    expect(await terminal.exited).toBe(0);
    expect(terminal.shown()).toBe(`Token: \nlogged in to ${service.url} as alice<U+001B>[31m\n`);
  });
});
