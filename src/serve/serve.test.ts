import { describe, expect, test } from "bun:test";
import { join } from "node:path";
import { version } from "../../package.json" with { type: "json" };
import { callTodo, complaintOf } from "../../test/call-todo.ts";
import { run, runTodo } from "../../test/command.ts";
import { greet, mint, whoami } from "../../test/credentials.ts";
import { freePort } from "../../test/free-port.ts";
import { whyNoDatabase } from "../../test/postgres.ts";
import { postTodo } from "../../test/served-todos.ts";
import { serve, stop } from "../../test/server.ts";
import { skipFor, whyNoFile } from "../../test/skip.ts";
import { follow } from "../../test/sse.ts";
import { usePostgres } from "../../test/stores.ts";
import { filesIn, temporaryFolder } from "../../test/temporary.ts";
import { until } from "../../test/until.ts";
import { readConfig } from "../config/config.ts";
import { openSqliteKeys } from "../storage/sqlite/keys.ts";
import { openSqlite } from "../storage/sqlite/store.ts";
import { getOwnHost } from "./serve.ts";

const folder = temporaryFolder();
const file = filesIn(folder);
const PAIR = { TODO_ADMIN_USER: "root", TODO_ADMIN_PASSWORD: "s3cret words" };

/** Waits for a server that does not log when it listens. */
const listens = (url: string) =>
  until(
    () =>
      fetch(url).then(
        () => true,
        () => false,
      ),
    `${url} responds`,
  );

test.each([
  ["todo.example.com", "todo.example.com:3000"],
  ["0.0.0.0", "127.0.0.1:3000"],
  ["fe80::1", "[fe80::1]:3000"],
])("a server on %s has the own host %s", (host, expected) => {
  expect(getOwnHost(readConfig({ host }, {}))).toBe(expected);
});

describe("todo serve does not start with", () => {
  /** Runs the server in this process, because it fails before it listens. */
  const complaint = (line: string, code?: number): Promise<string> => {
    // A path may have spaces.
    const flags = line.split(/ (?=--)/).flatMap((flag) => flag.split(/ (.*)/s).filter(Boolean));
    return complaintOf(callTodo(["serve", "--port", "0", "--log-level", "silent", ...flags]), code);
  };

  // Each start in this process listens to the errors of its outputs.
  for (const output of [process.stdout, process.stderr]) output.setMaxListeners(100);
  const notes = file("not a database, ".repeat(100));
  const store = (...path: readonly string[]) => `--store sqlite:${join(folder, ...path)}`;
  const NO_KEY = "private mode has no valid credentials:";
  const inMemory = `${NO_KEY} store the to-dos with --store sqlite:FILE and create an API key with: todo keys create NAME --store sqlite:FILE. Or create a user with: todo users add NAME --users-file FILE`;
  const kept = `${NO_KEY} create an API key with: todo keys create NAME, with the same store.`;
  const POSTGRES = "--store postgres://todo:hunter2@127.0.0.1:1/todos";
  test.each<[what: string, line: string, code: number, complaint: string]>([
    [
      "an unknown kind of store",
      "--store redis://u:hunter2@h",
      2,
      '--store: there is no store of the kind "redis:"',
    ],
    ["a password in a file of users", `--users-file ${file("al:hunter2\n")}`, 2, "line 1 (al) has no whole"],
    ["an unknown host", "--host no.invalid", 1, "host no.invalid does not resolve"],
    ["an address of another machine", "--host 192.0.2.1", 1, "192.0.2.1 is not an address of this machine"],
    ["a missing folder", store("mount", "todos.db"), 1, "check that its folder exists, and that its disk is"],
    ["a file that is no database", `--store sqlite:${notes}`, 2, `--store: ${notes}`],
    ["a file as folder", `--store sqlite:${notes}/a.db`, 2, "a part of the path is a file, not a folder"],
    ["a database that may be back later", POSTGRES, 1, "--store: 127.0.0.1:1: Failed to connect; check that"],
    ["backups of a store in memory", "--backup-dir .", 2, "--backup-dir needs a sqlite: store: set --store"],
    [
      "backups in a file",
      `${store("a.db")} --backup-dir ${notes}`,
      2,
      "it is not a folder: name an existing",
    ],
    ["a missing folder for backups", `${store("a.db")} --backup-dir missing`, 1, "no such file or folder"],
    [
      "a simulation off loopback",
      "--simulate errors=1% --host 0.0.0.0",
      2,
      "and --host is 0.0.0.0: leave one",
    ],
    ["private mode and no store", "--private", 2, inMemory],
    ["private mode and no key", `--private ${store("empty.db")}`, 2, kept],
  ])("%s", async (_what, line, code, expected) => {
    const said = await complaint(line, code);
    expect(said).toContain(expected);
    expect(said).not.toContain("hunter2");
  });

  test("a simulation by a variable, because it has none", async () => {
    const outcome = callTodo(["serve"], { TODO_SIMULATE: "errors=1%" });
    expect(await complaintOf(outcome)).toContain("unknown variable TODO_SIMULATE");
  });

  test("a store that another server uses", async () => {
    const path = file();
    const opened = await openSqlite(path);
    expect(await complaint(`--store sqlite:${path}`, 1)).toBe(
      `--store: ${path} is in use by another server: stop it first`,
    );
    await opened.close();
  });

  test("a port that is in use, and names its flag or variable", async () => {
    await using first = serve();
    const { port } = new URL(await first.url);
    for (const [args, variables, source] of [
      [["--port", port], {}, "--port"],
      [[], { TODO_PORT: port }, "TODO_PORT"],
      [["--port", "0", "--metrics-port", port], {}, "--metrics-port"],
    ] as const) {
      await using second = runTodo(["serve", ...args], variables);
      const code = await second.exited;
      expect(await complaintOf({ code, stdout: second.stdout(), stderr: second.stderr() }, 1)).toBe(
        `port ${port} on 127.0.0.1 is in use: stop the other program, or choose another port with ${source}`,
      );
    }
    expect((await fetch(`${await first.url}/livez`)).status).toBe(200);
  });
});

describe("todo serve", () => {
  test("with nothing configured shows credentials that work once, outside the log, and no addresses", async () => {
    await using server = serve();
    const url = await server.url;
    await until(() => /\/admin\/.*\n\n$/.test(server.stderr()), "the credentials are shown");
    const shown = server.stderr();
    const [[, token = ""] = [], ...tokens] = shown.matchAll(/^demo-token=(todo_\w{49})$/gm);
    const [[, password = ""] = [], ...passwords] = shown.matchAll(/^demo-password=(\w{24})$/gm);
    expect([token === "", password === "", tokens, passwords]).toEqual([false, false, [], []]);
    expect(await whoami(url, token)).toBe("demo");
    expect(await greet(url, "admin", password)).toBe("Hello, admin!");
    const lines = await stop(server);
    expect(lines.map(({ msg }) => msg)).toEqual(["listening", "stopping", "stopped"]);
    expect(lines[0]).toMatchObject({ level: "info", version, url, store: "memory" });
    for (const secret of [token, password]) expect(server.stdout()).not.toContain(secret);
    expect(shown).toStartWith("\nNo credentials are configured. These work until the server stops:\n");
    expect(shown + server.stdout()).not.toMatch(/To-dos:|in memory/);
  });

  test("in private mode accepts an API key, and shows no credentials", async () => {
    const path = file();
    const { keys, close } = openSqliteKeys(path, { createIfMissing: true });
    const { token } = await mint(keys, "phone");
    await close();
    await using server = serve(["--private", "--store", `sqlite:${path}`]);
    const url = await server.url;
    expect([await whoami(url, token), (await fetch(`${url}/api/todos`)).status]).toEqual(["phone", 401]);
    await stop(server);
    expect(server.stderr()).toBe("");
  });

  test("applies its settings, and warns of what they put at risk", async () => {
    const access = ["--allowed-hosts", "todo.example", "--cors-origins", "https://app.example"];
    const login = ["--realm", "a realm", "--basic-failures", "1", "--allow-basic-over-http"];
    const limits = ["--max-todos", "2", "--max-events", "1", "--max-subscribers", "1"];
    await using server = serve([...access, ...login, ...limits], PAIR);
    const url = await server.url;
    const get = (path: string, headers: Readonly<Record<string, string>> = {}) =>
      fetch(url + path, { headers });
    expect((await get("/livez", { Host: "todo.example" })).status).toBe(200);
    const { headers } = await get("/livez", { Origin: "https://app.example" });
    expect(headers.get("access-control-allow-origin")).toBe("https://app.example");
    expect((await get("/admin/")).headers.get("www-authenticate")).toContain('realm="a realm"');
    expect(await greet(url, "root", "wrong")).toBe(401);
    expect(await greet(url, "root", "s3cret words")).toBe(429);
    const since = (await get("/api/todos")).headers.get("etag")?.slice(1, -1) ?? "";
    for (const status of [201, 201, 507]) expect((await postTodo(url, "a")).status).toBe(status);
    {
      await using events = await follow(url, { since });
      expect((await events.take(1)).map(({ type }) => type)).toEqual(["resync"]);
      expect((await get("/api/events")).status).toBe(503);
    }
    expect(await stop(server)).toContainEqual(
      expect.objectContaining({ level: "warn", msg: expect.stringContaining("TODO_ALLOW_BASIC_OVER_HTTP") }),
    );
  });

  test("on all addresses warns that others need HTTPS, and not on a name of loopback", async () => {
    for (const [host, isWarned] of [
      ["0.0.0.0", true],
      ["localhost", false],
    ] as const) {
      await using server = serve(["--host", host], PAIR);
      await server.url;
      await stop(server);
      expect(server.stdout().includes("requests from this machine only")).toBe(isWarned);
    }
  });

  test.skipIf(skipFor(whyNoFile("/dev/full")))("does not stop when its log cannot be written", async () => {
    const port = await freePort();
    const line = `exec "$0" --no-env-file src/cli/main.ts serve --port ${port} --access-log > /dev/full`;
    await using server = run(["sh", "-c", line, process.execPath], PAIR);
    const url = `http://127.0.0.1:${port}/livez`;
    await listens(url);
    for (const _ of [1, 2, 3]) expect((await fetch(url)).status).toBe(200);
    await stop(server);
    expect(server.stderr()).toMatch(/^todo: cannot write the log: .*\n$/);
  });

  test("logs nothing with --log-level silent", async () => {
    const port = await freePort();
    const args = ["--port", String(port), "--log-level", "silent", "--access-log"];
    await using server = serve(args, { ...PAIR, TODO_ALLOW_BASIC_OVER_HTTP: "on" });
    const url = `http://127.0.0.1:${port}`;
    await listens(url);
    expect(await whoami(url, "wrong")).toBe(401);
    await stop(server);
    expect([server.stdout(), server.stderr()]).toEqual(["", ""]);
  });

  test("--seed fills the store, and --simulate disturbs requests; the log says so", async () => {
    await using server = serve(["--seed", file("- [x] a\nb\n"), "--simulate", "latency=1ms"]);
    const response = await fetch(`${await server.url}/api/todos`);
    expect(await response.json()).toEqual([
      { id: 1, title: "a", done: true },
      { id: 2, title: "b", done: false },
    ]);
    expect(server.stdout()).toContain('"todos":2,"msg":"store seeded"');
    expect(server.stdout()).toContain('"msg":"SIMULATION: ');
  });
});

describe.skipIf(skipFor(whyNoDatabase))("todo serve with a database", () => {
  const postgres = usePostgres();

  const refused = (store: string, code: number) => complaintOf(callTodo(["serve", "--store", store]), code);

  test("serves at the first start after the database is up", async () => {
    const store = await postgres.newDatabase();
    await postgres.stop("in order");
    await refused(store, 1);
    await postgres.start();
    await using server = serve(["--store", store]);
    expect((await fetch(`${await server.url}/readyz`)).status).toBe(200);
  });

  test("that rejects the URL exits with 2", async () => {
    const url = await postgres.newDatabase();
    const [absent, wrong] = [new URL(url), new URL(url)];
    absent.pathname = "/absent";
    wrong.password = "wrong";
    expect(await refused(absent.href, 2)).toContain("absent");
    expect(await refused(wrong.href, 2)).toContain("password");
  });
});
