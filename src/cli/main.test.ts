import { describe, expect, test } from "bun:test";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { version } from "../../package.json" with { type: "json" };
import { callTodo } from "../../test/call-todo.ts";
import { type Command, run, runTodo } from "../../test/command.ts";
import { freePort } from "../../test/free-port.ts";
import { skipFor, whyNoFile } from "../../test/skip.ts";
import { follow } from "../../test/sse.ts";
import { temporaryFolder } from "../../test/temporary.ts";
import { openTerminal, whyNoTerminal } from "../../test/terminal.ts";
import { getVariables, SERVE_SETTING_GROUPS, SERVE_SETTINGS } from "../config/settings.ts";
import { hashToken, mintToken } from "../credential/token.ts";

const folder = temporaryFolder();

function file(name: string, text: string): string {
  const path = join(folder, name);
  writeFileSync(path, text);
  return path;
}

const TOKEN = mintToken();
const ALICE = `alice:${hashToken(TOKEN).toString("hex")}`;
/** Made by Apache's htpasswd. The password is "secret". */
const BOB = "bob:$2y$05$7IL2tOezyab7maxiTsBLY..4UosIOyqFIABzRuFkcvoNXI.tP//cK";
const PAIR = { TODO_ADMIN_USER: "admin", TODO_ADMIN_PASSWORD: "s3cret words" };
const WARNING = "warn";

const serve = (args: readonly string[] = [], variables: Readonly<Record<string, string>> = {}): Command =>
  runTodo(["serve", "--port", "0", ...args], variables);

interface Line extends Readonly<Record<string, unknown>> {
  readonly level: string;
  readonly msg: string;
}

/** Returns the log: every complete line of standard output, each of which must be JSON. */
const log = (command: Command): Line[] =>
  command
    .stdout()
    .split("\n")
    .slice(0, -1)
    .map((line) => JSON.parse(line));

/** Waits until the log has at least this many lines with a message. */
async function logged(command: Command, message: string, times = 1): Promise<Line[]> {
  while (true) {
    const lines = log(command).filter(({ msg }) => msg === message);
    if (lines.length >= times) return lines;
    await Bun.sleep(10);
  }
}

/** Stops a server, so that all its output is available. */
async function stop(command: Command): Promise<void> {
  command.kill("SIGTERM");
  expect(await command.exited).toBe(0);
}

/** Returns the response of a server that does not log when it listens. */
async function reached(url: string): Promise<Response> {
  while (true) {
    const response = await fetch(url).catch(() => Bun.sleep(20));
    if (response !== undefined) return response;
  }
}

type Answer = readonly [status: number, body: string];

async function ask(url: string, authorization: string): Promise<Answer> {
  const response = await fetch(url, { headers: { Authorization: authorization } });
  return [response.status, response.status === 200 ? await response.text() : ""];
}
const whoami = (url: string, token: string): Promise<Answer> => ask(`${url}/api/whoami`, `Bearer ${token}`);
const admin = (url: string, user: string, password: string): Promise<Answer> =>
  ask(`${url}/admin/`, `Basic ${Buffer.from(`${user}:${password}`).toString("base64")}`);

describe("todo", () => {
  test("--help has the commands in groups, examples and exit codes", async () => {
    await using command = runTodo(["--help"]);
    expect([await command.exited, command.stderr()]).toEqual([0, ""]);
    expect(command.stdout()).toContain("serve [options]");
    const headings = [...command.stdout().matchAll(/^\S.*:$/gm)].map(([heading]) => heading);
    expect(headings).toEqual([
      "Options:",
      "Server:",
      "To-dos of a running service:",
      "API keys and users:",
      "Stores:",
      "Help:",
      "Examples:",
      "Exit codes:",
    ]);
  });

  test.skipIf(skipFor(whyNoTerminal))("--help fits a terminal of 60 columns", async () => {
    for (const command of ["", "keys create"]) {
      const line = `"$BUN" --no-env-file src/cli/main.ts ${command} --help`;
      await using terminal = openTerminal(line);
      expect(await terminal.exited).toBe(0);
      const widths = terminal
        .shown()
        .split("\n")
        .map((text) => Bun.stringWidth(text));
      expect(Math.max(...widths)).toBeLessThanOrEqual(60);
    }
  });

  test("serve --help lists the settings in groups, each with its variables", async () => {
    const { code, stdout, stderr } = await callTodo(["serve", "--help"]);
    expect([code, stderr]).toEqual([0, ""]);
    const headings = [...stdout.matchAll(/^\S.*:$/gm)].map(([heading]) => heading);
    expect(headings).toEqual([...SERVE_SETTING_GROUPS.map(({ heading }) => `${heading}:`), "Options:"]);
    const help = stdout.replace(/\s+/g, " ");
    for (const setting of SERVE_SETTINGS) {
      if (setting.flag === undefined) expect(help).toContain(getVariables(setting).join(", "));
      else
        expect(help).toContain(
          `${setting.flag} ${setting.description} (${getVariables(setting).join(", ") || "no variable"})`,
        );
    }
  });

  test("--version prints the version of the package", async () => {
    expect(await callTodo(["--version"])).toEqual({ code: 0, stdout: `${version}\n`, stderr: "" });
  });

  test("without a command prints its usage", async () => {
    const { code, stdout, stderr } = await callTodo([]);
    expect([code, stdout]).toEqual([2, ""]);
    expect(stderr).toStartWith("Usage: todo ");
  });
});

describe("todo rejects, with one line and before it listens,", () => {
  /** Returns the one line on standard error. */
  async function refusal(command: Command): Promise<string> {
    const started = command.url.then(
      () => "it listens",
      () => command.exited,
    );
    expect(await Promise.race([command.exited, started])).toBe(2);
    expect(command.stdout()).not.toContain("listening");
    const [line = "", ...rest] = command.stderr().split("\n");
    expect(rest).toEqual([""]);
    return line;
  }

  test.each<[what: string, args: readonly string[], line: string]>([
    ["an unknown command", ["serv"], "unknown command 'serv' (Did you mean serve?)"],
    ["a word that means a command", ["uncheck", "1"], "unknown command 'uncheck' (Did you mean reopen?)"],
    ["such a word below another command", ["keys", "new"], "unknown command 'new'\n"],
    ["an unknown flag", ["serve", "--prot", "1"], "unknown option '--prot' (Did you mean --port?)"],
    ["a flag before the command", ["--port", "1", "serve"], "unknown option '--port'"],
    ["a flag without its value", ["serve", "--port"], "option '--port <port>' argument missing"],
    [
      "a title in another encoding",
      ["add", "caf\uFFFD"],
      "an argument is not UTF-8: check the encoding of the terminal",
    ],
    ["too many arguments", ["serve", "3000"], "Add --help to see its arguments."],
    ["an invalid value", ["serve", "--port", "99999"], '--port "99999": must be a whole number'],
    ["a password as a flag", ["serve", "--admin-password", "hunter2"], "unknown option '--admin-password"],
    [
      "a password as a flag with =",
      ["serve", "--admin-password=hunter2"],
      "unknown option '--admin-password",
    ],
  ])("%s", async (_what, args, line) => {
    const { code, stdout, stderr } = await callTodo(args);
    expect([code, stdout]).toEqual([2, ""]);
    expect(stderr).toMatch(/^todo: .*\n$/);
    expect(stderr).toContain(line);
    expect(stderr).not.toContain("hunter2");
  });

  test.each<[what: string, args: readonly string[], line: string]>([
    [
      "an unknown kind of store, without repeating its password",
      ["serve", "--port", "0", "--store", "redis://u:hunter2@h"],
      'no store of the kind "redis:": use memory:, sqlite:PATH or postgres://…',
    ],
    [
      "a file with a plain-text password, without repeating it",
      ["serve", "--port", "0", "--users-file", file("plain-text", "carol:hunter2\n")],
      "line 1 (carol) has no whole hash",
    ],
    ["an unknown host", ["serve", "--port", "0", "--host", "no.invalid"], "host no.invalid does not resolve"],
    [
      "an address of another machine",
      ["serve", "--port", "0", "--host", "192.0.2.1"],
      "192.0.2.1 is not an address of this machine",
    ],
  ])("%s", async (_what, args, line) => {
    await using command = runTodo(args);
    const said = await refusal(command);
    expect(said).toStartWith("todo: ");
    expect(said).toContain(line);
    expect(said).not.toContain("hunter2");
  });

  test("a port that is in use", async () => {
    await using first = serve();
    const { port } = new URL(await first.url);
    for (const [args, variables, source] of [
      [["--port", port], {}, "--port"],
      [[], { TODO_PORT: port }, "TODO_PORT"],
    ] as const) {
      await using second = runTodo(["serve", ...args], variables);
      expect(await refusal(second)).toBe(
        `todo: port ${port} on 127.0.0.1 is in use: stop the other program, or choose another port with ${source}`,
      );
    }
    expect((await fetch(`${await first.url}/livez`)).status).toBe(200);
  });
});

describe("todo serve with nothing configured", () => {
  test("generates a token and a password at each start, and shows them once, outside the log", async () => {
    await using server = serve();
    const url = await server.url;
    while (!/\/admin\/.*\n\n$/.test(server.stderr())) await Bun.sleep(5);
    const [[, token = ""] = [], ...tokens] = server.stderr().matchAll(/^demo-token=(todo_\w{49})$/gm);
    const [[, password = ""] = [], ...passwords] = server.stderr().matchAll(/^demo-password=(\w{24})$/gm);
    expect([token === "", password === "", tokens, passwords]).toEqual([false, false, [], []]);
    expect(await whoami(url, token)).toEqual([200, "demo"]);
    expect(await admin(url, "admin", password)).toEqual([200, "Hello, admin!"]);
    await stop(server);
    for (const secret of [token, password]) expect(server.stdout()).not.toContain(secret);
    await using next = serve();
    await next.url;
    await stop(next);
    expect(next.stderr()).toMatch(/^demo-token=todo_\w{49}$/m);
    for (const secret of [token, password]) expect(next.stderr()).not.toContain(secret);
    expect(log(server).map(({ msg }) => msg)).toEqual(["listening", "stopping", "stopped"]);
  });
});

describe("todo serve", () => {
  const clients = file("clients", `${ALICE}\n`);
  const users = file("users", `${BOB}\n`);
  const NO_CLIENT = "no client is configured: /api/whoami rejects every request";
  const NO_USER =
    "no user is configured: /admin/ rejects every request until you run todo users add and set --users-file";
  const EASY = "the password of the admin user is easy to guess: use at least 8 characters, and not the name";
  const IN_CLEAR =
    "/admin/ accepts requests from this machine only, because passwords would be sent over plain HTTP: set --tls-cert and --tls-key, or --trusted-proxy if a proxy is in front";
  const LIFTED =
    "passwords are accepted over plain HTTP (TODO_ALLOW_BASIC_OVER_HTTP), where others can read them";

  test.each<
    [
      what: string,
      args: readonly string[],
      variables: Readonly<Record<string, string>>,
      warnings: readonly string[],
    ]
  >([
    ["clients only", ["--clients-file", clients], {}, [NO_USER]],
    ["users only", ["--users-file", users], {}, [NO_CLIENT]],
    ["a fixed user only", [], PAIR, [NO_CLIENT]],
    ["a short password", ["--clients-file", clients], { ...PAIR, TODO_ADMIN_PASSWORD: "s3cret" }, [EASY]],
    [
      "the name as password",
      ["--clients-file", clients],
      { TODO_ADMIN_USER: "administrator", TODO_ADMIN_PASSWORD: "Administrator" },
      [EASY],
    ],
    ["a host name of loopback", ["--host", "localhost", "--clients-file", clients], PAIR, []],
    ["all addresses", ["--host", "0.0.0.0", "--clients-file", clients], PAIR, [IN_CLEAR]],
    ["passwords over plain HTTP", ["--allow-basic-over-http", "--clients-file", clients], PAIR, [LIFTED]],
  ])("with %s logs the right warnings, and no secrets", async (_what, args, variables, warnings) => {
    await using server = serve(args, variables);
    const url = await server.url;
    expect(url).toMatch(/:[1-9]\d*$/);
    expect(await whoami(url, TOKEN)).toEqual(warnings.includes(NO_CLIENT) ? [401, ""] : [200, "alice"]);
    const [user, password] =
      "TODO_ADMIN_USER" in variables
        ? ([variables.TODO_ADMIN_USER ?? "", variables.TODO_ADMIN_PASSWORD ?? ""] as const)
        : (["bob", "secret"] as const);
    expect(await admin(url, user, password)).toEqual(
      warnings.includes(NO_USER) ? [401, ""] : [200, `Hello, ${user}!`],
    );
    await stop(server);
    expect(server.stderr()).toBe("");
    const warned = log(server).flatMap(({ level, msg, surface }) =>
      level === WARNING && surface === undefined ? [msg] : [],
    );
    expect(warned).toEqual([...warnings]);
  });

  test("applies its settings", async () => {
    const access = ["--allowed-hosts", "todo.example", "--cors-origins", "https://app.example"];
    const login = ["--realm", "a realm", "--basic-failures", "1"];
    const limits = ["--max-todos", "2", "--max-events", "1", "--max-subscribers", "1"];
    await using server = serve([...access, ...login, ...limits], PAIR);
    const url = await server.url;
    const get = (path: string, headers: Readonly<Record<string, string>> = {}) =>
      fetch(url + path, { headers });
    expect((await get("/livez", { Host: "todo.example" })).status).toBe(200);
    const { headers } = await get("/livez", { Origin: "https://app.example" });
    expect(headers.get("access-control-allow-origin")).toBe("https://app.example");
    expect((await get("/admin/")).headers.get("www-authenticate")).toContain('realm="a realm"');
    expect((await admin(url, "admin", "wrong"))[0]).toBe(401);
    expect((await admin(url, "admin", "s3cret words"))[0]).toBe(429);
    const since = (await get("/api/todos")).headers.get("etag")?.slice(1, -1) ?? "";
    const post = {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: '{"title":"a"}',
    };
    for (const status of [201, 201, 507]) expect((await fetch(`${url}/api/todos`, post)).status).toBe(status);
    await using events = await follow(url, { since });
    expect((await events.take(1)).map(({ type }) => type)).toEqual(["resync"]);
    expect((await get("/api/events")).status).toBe(503);
  });

  test("limits the event streams of one network", async () => {
    await using server = serve(["--trusted-proxy", "127.0.0.1", "--max-subscribers-per-network", "1"]);
    const url = await server.url;
    const headers = { "X-Forwarded-For": "203.0.113.5" };
    await using _stream = await follow(url, { headers });
    expect((await fetch(`${url}/api/events`, { headers })).status).toBe(503);
  });
});

test("a credentials file that changes just after the start is reloaded", async () => {
  const line = (token: string): string => `carol:${hashToken(token).toString("hex")}\n`;
  const clients = file("soon-clients", line("one"));
  await using server = serve(["--clients-file", clients]);
  const url = await server.url;
  // The length is the same, and the modification time may be, depending on the file system.
  writeFileSync(clients, line("two"));
  await logged(server, "credentials read again", 1);
  expect([await whoami(url, "one"), await whoami(url, "two")]).toEqual([
    [401, ""],
    [200, "carol"],
  ]);
});

describe("todo serve with a module", () => {
  const source = (kind: string): string => `
    interface Client { readonly name: string }
    export ${kind} function lookupClient(token: string): unknown {
      if (token === "throw") throw new Error("no database");
      const answers: Record<string, unknown> = { good: { name: "carol", age: 7 } satisfies Client, null: null, string: "carol", nameless: {}, number: { name: 7 }, false: false };
      return answers[token];
    }
    export ${kind} function checkUser(user: string, password: string): unknown {
      if (password === "throw") throw new Error("no directory");
      const answers: Record<string, unknown> = { good: user === "carol", one: 1, string: "true", null: null };
      return password in answers ? answers[password] : password === "nothing" ? undefined : false;
    }`;

  test.each([
    ["synchronous", ""],
    ["async", "async"],
  ])("of %s functions calls them, and responds with 503 if they fail", async (name, kind) => {
    await using server = serve(["--auth-module", file(`${name}.ts`, source(kind))]);
    const url = await server.url;
    const bearer = async (tokens: readonly string[]) =>
      Promise.all(tokens.map((token) => whoami(url, token)));
    const basic = async (passwords: readonly string[]) =>
      Promise.all(passwords.map((password) => admin(url, "carol", password)));
    expect(await bearer(["good", "bad", "null"])).toEqual([
      [200, "carol"],
      [401, ""],
      [401, ""],
    ]);
    expect(await basic(["good", "bad"])).toEqual([
      [200, "Hello, carol!"],
      [401, ""],
    ]);
    expect(await admin(url, "dave", "good")).toEqual([401, ""]);
    for (const [status] of await bearer(["throw", "string", "nameless", "number", "false"]))
      expect(status).toBe(503);
    for (const [status] of await basic(["throw", "one", "string", "null", "nothing"]))
      expect(status).toBe(503);
    await stop(server);
    const failures = log(server).filter(({ msg }) => msg === "request failed");
    expect(new Set(failures.map(({ code }) => code))).toEqual(new Set(["credentials_unavailable"]));
    expect(server.stdout()).toContain("no database");
    expect(server.stderr()).toBe("");
  });

  test.each([
    ["lookupClient", [200, "carol"], [401, ""], "no user is configured"],
    ["checkUser", [401, ""], [200, "Hello, carol!"], "no client is configured"],
  ] as const)(
    "that exports only %s rejects every credential of the other kind",
    async (name, client, user, warning) => {
      const path = file(
        `${name}.ts`,
        `const both = { lookupClient: () => ({ name: "carol" }), checkUser: () => true };\nexport const ${name} = both.${name};\n`,
      );
      await using server = serve(["--auth-module", path]);
      const url = await server.url;
      expect([await whoami(url, "x"), await admin(url, "carol", "x")]).toEqual([[...client], [...user]]);
      await stop(server);
      expect(server.stdout()).toContain(warning);
      expect(server.stderr()).toBe("");
    },
  );

  test("combines it with files and a fixed user", async () => {
    const args = [
      "--auth-module",
      file("added.ts", source("async")),
      "--clients-file",
      file("added-clients", ALICE),
      "--users-file",
      file("added-users", BOB),
    ];
    await using server = serve(args, PAIR);
    const url = await server.url;
    expect(await Promise.all([TOKEN, "good", "bad", "throw"].map((token) => whoami(url, token)))).toEqual([
      [200, "alice"],
      [200, "carol"],
      [401, ""],
      [503, ""],
    ]);
    const pairs = [
      ["admin", "s3cret words"],
      ["bob", "secret"],
      ["carol", "good"],
      ["carol", "secret"],
      ["admin", "secret"],
    ] as const;
    expect(await Promise.all(pairs.map(([user, password]) => admin(url, user, password)))).toEqual([
      [200, "Hello, admin!"],
      [200, "Hello, bob!"],
      [200, "Hello, carol!"],
      [401, ""],
      [401, ""],
    ]);
  });
});

describe("the log of todo serve", () => {
  const clients = file("log-clients", `${ALICE}\n`);

  test("has no error when the clients file is a pipe, which the server reads only once", async () => {
    const line = `exec "$0" --no-env-file src/cli/main.ts serve --port 0 --clients-file <(echo '${ALICE}')`;
    await using server = run(["bash", "-c", line, process.execPath], PAIR);
    const url = await server.url;
    // Longer than the interval between two checks of a file.
    await Bun.sleep(1500);
    expect(await whoami(url, TOKEN)).toEqual([200, "alice"]);
    await stop(server);
  });

  test("has no line for a request by default", async () => {
    await using server = serve(["--clients-file", clients], PAIR);
    expect((await fetch(`${await server.url}/api/todos`)).status).toBe(200);
    await stop(server);
    expect(log(server).map(({ msg }) => msg)).toEqual(["listening", "stopping", "stopped"]);
    expect(log(server)[0]).toMatchObject({ level: "info", version, url: await server.url, store: "memory" });
  });

  test.skipIf(skipFor(whyNoFile("/dev/full")))(
    "does not stop the server when it cannot be written",
    async () => {
      const port = await freePort();
      const line = `exec "$0" --no-env-file src/cli/main.ts serve --port ${port} --access-log > /dev/full`;
      await using server = run(["sh", "-c", line, process.execPath], PAIR);
      for (const _ of [1, 2, 3]) expect((await reached(`http://127.0.0.1:${port}/livez`)).status).toBe(200);
      await stop(server);
      expect(server.stderr()).toMatch(/^todo: cannot write the log: .*\n$/);
    },
  );

  test("is empty with --log-level silent", async () => {
    const port = await freePort();
    const args = ["--port", String(port), "--log-level", "silent", "--access-log", "--clients-file", clients];
    await using server = runTodo(["serve", ...args], { TODO_ALLOW_BASIC_OVER_HTTP: "on" });
    const url = `http://127.0.0.1:${port}`;
    await reached(url);
    expect(await whoami(url, "wrong")).toEqual([401, ""]);
    await stop(server);
    expect([server.stdout(), server.stderr()]).toEqual(["", ""]);
  });
});
