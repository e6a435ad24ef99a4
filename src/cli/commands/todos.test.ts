import { describe, expect, test } from "bun:test";
import { Readable } from "node:stream";
import { type CalledTodo, callTodo, complaintOf, jsonLines, startTodo } from "../../../test/call-todo.ts";
import { makeCertificate } from "../../../test/certificate.ts";
import { ended, type Outcome, run, runTodo } from "../../../test/command.ts";
import { startFaultyProxy } from "../../../test/faulty-proxy.ts";
import { listTodos } from "../../../test/served-todos.ts";
import { startService, startTls, type TestService } from "../../../test/service.ts";
import { skipFor, whyNoFile } from "../../../test/skip.ts";
import { filesIn } from "../../../test/temporary.ts";
import { openTerminal, whyNoTerminal } from "../../../test/terminal.ts";
import { until } from "../../../test/until.ts";
import { openMemory } from "../../storage/memory/store.ts";

const TOKEN = "t0ken";
const [FIRST, SECOND, THIRD] = ["9223372036854775808", "9223372036854775809", "9223372036854775810"];
const EVIL = "\x1b]0;owned\x07 \u202egpj.exe \x9b31m";
const LOOPBACK = { hostname: "127.0.0.1", port: 0 };

async function start(...titles: readonly string[]): Promise<TestService> {
  const store = openMemory({ lastId: 2n ** 63n - 1n });
  for (const title of titles) await store.insert(title);
  const lookupClient = (token: string) => (token === TOKEN ? { name: "alice\x1b[31m" } : undefined);
  return startService({ store, credentials: { lookupClient } });
}

const add = (service: TestService, title: string) => service.sendJson("POST", "/api/todos", { title });
const markDone = (service: TestService, id = FIRST) =>
  service.sendJson("PATCH", `/api/todos/${id}`, { done: true });

/** Starts a service that keeps one event, behind a proxy. After a lost connection, clients miss changes. */
async function startForgetful() {
  const service = startService({ store: openMemory({ maxEvents: 1 }) });
  let isAway = false;
  const proxy = await startFaultyProxy(service.port, () => (isAway ? "refuse" : "pass"));
  return {
    url: proxy.url,
    add: (title: string) => add(service, title),
    addWhileAway: async (...titles: readonly string[]): Promise<void> => {
      isAway = true;
      proxy.cut();
      for (const title of titles) await add(service, title);
      isAway = false;
    },
    asked: (times: number) => until(() => (proxy.struck().pass ?? 0) >= times, `${times} requests`),
    [Symbol.asyncDispose]: async () => {
      await proxy[Symbol.asyncDispose]();
      await service[Symbol.asyncDispose]();
    },
  };
}

interface Served {
  readonly url: string;
}

const todo = ({ url }: Served, args: readonly string[], input?: string): Promise<Outcome> =>
  callTodo(args, { TODO_URL: url }, input);
const fails = (served: Served, args: readonly string[], code: number) =>
  complaintOf(todo(served, args), code);

const prints = ({ stdout, stderr }: CalledTodo, text: string) =>
  until(() => Bun.stripANSI(stdout() + stderr()).includes(text), `it prints ${text}`);

const titles = async (service: TestService): Promise<string[]> =>
  (await listTodos(service.url)).map(({ title }) => title);

test("over HTTPS, todo reports an untrusted certificate, and accepts a certificate in NODE_EXTRA_CA_CERTS", async () => {
  await using service = startTls();
  expect(await fails(service, ["list"], 1)).toContain("NODE_EXTRA_CA_CERTS");
  const NODE_EXTRA_CA_CERTS = filesIn()(service.certificate.cert);
  // The runtime reads this variable at its start.
  const trusting = await ended(runTodo(["add", "buy milk"], { TODO_URL: service.url, NODE_EXTRA_CA_CERTS }));
  expect([trusting.code, trusting.stderr]).toEqual([0, ""]);
});

const isDefaultPortUsed = await fetch("http://127.0.0.1:3000").then(
  () => true,
  () => false,
);
const whyServed = isDefaultPortUsed ? "another program serves port 3000" : undefined;

describe("in a pipe, todo", () => {
  test("--json prints each to-do that it adds, marks, deletes or lists as a line with the exact id", async () => {
    await using service = await start();
    const lines = async (...args: readonly string[]): Promise<string[]> => {
      const { code, stdout, stderr } = await todo(service, [...args, "--json"]);
      expect([code, stderr]).toEqual([0, ""]);
      return stdout.split("\n").slice(0, -1);
    };
    expect(await lines("add", "buy", "milk")).toEqual([`{"id":${FIRST},"title":"buy milk","done":false}`]);
    expect(await lines("add", EVIL)).toEqual([
      `{"id":${SECOND},"title":"\\u001b]0;owned\\u0007 \\u202egpj.exe \\u009b31m","done":false}`,
    ]);
    expect(await lines("done", FIRST, SECOND)).toHaveLength(2);
    expect(await lines("reopen", SECOND)).toHaveLength(1);
    const milk = `{"id":${FIRST},"title":"buy milk","done":true}`;
    expect(await lines("list", "--done")).toEqual([milk]);
    expect(await lines("list", "--open")).toHaveLength(1);
    expect(await lines("show", FIRST)).toEqual([milk]);
    expect(await lines("rm", FIRST)).toEqual([`{"id":${FIRST}}`]);
    expect(await lines("list")).toHaveLength(1);
    expect(await titles(service)).toEqual([EVIL]);
  });

  test("list --limit prints the first to-dos, even more than one page of them", async () => {
    await using service = await start(...Array.from({ length: 1003 }, (_, index) => `${index + 1}`));
    await markDone(service);
    const listed = async (...args: readonly string[]) => {
      const { code, stdout, stderr } = await todo(service, ["list", "--json", ...args]);
      expect([code, stderr]).toEqual([0, ""]);
      return jsonLines(stdout).map(({ title }) => title);
    };
    expect(await listed("--limit", "2")).toEqual(["1", "2"]);
    expect(await listed("--limit", "1", "--open")).toEqual(["2"]);
    const many = await listed("--limit", "1002");
    expect([many.length, many.at(-1)]).toEqual([1002, "1002"]);
    expect(await listed("--limit", "5000")).toHaveLength(1003);
  });

  test("list prints the to-dos whose titles contain all the words, as does ls", async () => {
    await using service = await start("buy milk", "Café: buy", "walk");
    const found = async (...args: readonly string[]): Promise<string[]> =>
      (await todo(service, args)).stdout.split("\n").map((line) => line.replace(/^\d+ {2}/, ""));
    expect(await found("list", "BUY", "cafe")).toEqual(["[ ]  Café: buy", ""]);
    const more = "More to-dos follow. To show them, raise --limit.";
    expect(await found("ls", "buy", "--limit", "1")).toEqual(["[ ]  buy milk", more, ""]);
    expect(await found("ls", "buy", "--limit", "2")).toEqual(["[ ]  buy milk", "[ ]  Café: buy", ""]);
    expect(await found("ls", "tea")).toEqual(["No to-dos match.", ""]);
  });

  test("prints plain text and does not truncate titles", async () => {
    await using service = await start();
    const title = "日本 e\u0301".repeat(20);
    const row = `${FIRST}  [ ]  ${title}\n`;
    expect((await todo(service, ["add", title])).stdout).toBe(`added ${row}`);
    for (const args of [["show", FIRST], ["list"]]) expect((await todo(service, args)).stdout).toBe(row);
  });

  test("adds all lines that are not blank, in order, and adds no line twice with the same --batch", async () => {
    await using service = await start();
    for (const lines of ["one\ntwo\r\n\n\u0085\n\ufeff \t\none\n", "zero\none\ntwo\none\none"])
      expect((await todo(service, ["add", "-", "--batch", "a"], lines)).stdout).toMatch(/ earlier runs\n$/);
    expect(await titles(service)).toEqual(["one", "two", "one", "zero", "one"]);
    for (const _ of [1, 2]) expect((await todo(service, ["add", "-"], "again\n")).code).toBe(0);
    expect((await titles(service)).slice(5)).toEqual(["again", "again"]);
  });

  test.each<[what: string, lines: string | Uint8Array, complaint: string]>([
    ["one of the lines is invalid", `fine\n\n${"x".repeat(121)}\n`, "line 3: must be at most 120 characters"],
    [
      "the lines are not UTF-8",
      Buffer.from("fine\ncaf\xe9\n", "latin1"),
      "standard input: it is not UTF-8: convert it to UTF-8",
    ],
  ])("adds nothing if %s", async (_what, lines, complaint) => {
    await using service = await start();
    const outcome = callTodo(["add", "-"], { TODO_URL: service.url }, lines);
    expect(await complaintOf(outcome)).toBe(`nothing was added: ${complaint}`);
    expect(await titles(service)).toEqual([]);
  });

  test("adds every line once through an unreliable network", async () => {
    await using service = await start();
    const faults = ["lose", "pass", "cut", "refuse", "pass", "twice"] as const;
    let count = 0;
    await using proxy = await startFaultyProxy(service.port, () => faults[count++ % faults.length] ?? "pass");
    const lines = Array.from({ length: 12 }, (_, n) => `line ${n}`);
    expect((await todo(proxy, ["add", "-"], lines.join("\n"))).code).toBe(0);
    expect(await titles(service)).toEqual(lines);
  });

  test("reports how to continue after an interrupted add", async () => {
    await using service = await start();
    let isThrottled = false;
    await using proxy = await startFaultyProxy(service.port, () => (isThrottled ? "throttle" : "late"));
    await using broken = runTodo(["add", "-", "--json"], { TODO_URL: proxy.url }, "a\nb\nc\nd\n");
    await until(() => broken.stdout().split("\n").length >= 3, "two lines are added");
    isThrottled = true;
    broken.kill("SIGINT");
    expect(await broken.exited).toBe(130);
    const [, batch = ""] =
      /[23] of 4 lines were added; .*: todo add - --batch (\w+)$/m.exec(broken.stderr()) ?? [];
    expect((await todo(service, ["add", "-", "--batch", batch], "a\nb\nc\nd\n")).code).toBe(0);
    expect(await titles(service)).toEqual(["a", "b", "c", "d"]);
  });

  test("add ends at Ctrl-C while it waits for lines", async () => {
    await using service = await start();
    const input = new Readable({ read: () => {} });
    input.push("half\n");
    const command = startTodo(["add", "-"], { TODO_URL: service.url }, { input });
    await until(() => input.readableLength === 0, "it waits for more lines");
    command.interrupt();
    expect((await command.ended).code).toBe(130);
    expect(await titles(service)).toEqual([]);
  });

  test("whoami prints the name of the token's client, as text and as JSON", async () => {
    await using service = await start();
    const variables = { TODO_URL: service.url, TODO_TOKEN: TOKEN };
    expect((await callTodo(["whoami"], variables)).stdout).toBe("alice<U+001B>[31m\n");
    expect(await callTodo(["whoami", "--json"], variables)).toEqual({
      code: 0,
      stdout: '{"name":"alice\\u001b[31m"}\n',
      stderr: "",
    });
  });

  test("watch --json prints changes until Ctrl-C, and exits with 130", async () => {
    await using service = await start();
    const watching = startTodo(["watch", "--json"], { TODO_URL: service.url });
    let id = "";
    // Nothing shows when watch is connected, so add to-dos until it prints one.
    await until(async () => {
      id = /\d+/.exec(await (await add(service, "a")).text())?.[0] ?? "";
      return watching.stdout() !== "";
    }, "it prints a to-do");
    await service.send("DELETE", `/api/todos/${id}`);
    await prints(watching, "deleted");
    watching.interrupt();
    const { code, stdout, stderr } = await watching.ended;
    expect([code, stderr]).toEqual([130, "todo: interrupted\n"]);
    const [first, ...rest] = stdout.trimEnd().split("\n");
    expect(first).toMatch(
      /^\{"type":"created","position":"\w+-\d+","todo":\{"id":\d{19},"title":"a","done":false\}\}$/,
    );
    expect(rest.at(-1)).toMatch(new RegExp(`^\\{"type":"deleted","position":"\\w+-\\d+","id":${id}\\}$`));
  });

  test("exits with 0 and without a message when the reader of the pipe closes it", async () => {
    await using service = await start(...Array.from({ length: 2000 }, () => "x".repeat(100)));
    const line = `"${process.execPath}" --no-env-file src/cli/main.ts list --json | head -n 1`;
    const outcome = await ended(run(["bash", "-o", "pipefail", "-c", line], { TODO_URL: service.url }));
    expect(outcome).toEqual({ code: 0, stdout: expect.stringMatching(/^\{"id":.*\}\n$/), stderr: "" });
  });

  test("add adds all lines even if the reader of the pipe has closed it", async () => {
    await using service = await start();
    const line = `"${process.execPath}" --no-env-file src/cli/main.ts add - | true; echo "\${PIPESTATUS[0]}"`;
    const lines = Array.from({ length: 300 }, (_, n) => `line ${n}`);
    const added = await ended(run(["bash", "-c", line], { TODO_URL: service.url }, lines.join("\n")));
    expect(added).toEqual({ code: 0, stdout: "0\n", stderr: "" });
    expect(await titles(service)).toEqual(lines);
  });

  test.skipIf(skipFor(whyNoFile("/dev/full"))).each(["list", "add b", "watch --json"])(
    "reports that its output cannot be written: todo %s",
    async (args) => {
      await using service = await start("a");
      const line = `exec "$0" --no-env-file src/cli/main.ts ${args} > /dev/full`;
      await using command = run(["sh", "-c", line, process.execPath], { TODO_URL: service.url });
      // watch writes nothing before the first change.
      const hasFailed = async () => {
        if (args.startsWith("watch")) await add(service, "c");
        return command.stderr() !== "";
      };
      await until(hasFailed, "it reports the failure");
      expect([await command.exited, command.stdout()]).toEqual([1, ""]);
      expect(command.stderr()).toMatch(/^todo: standard output: ENOSPC.*\n$/);
      if (args === "add b") expect(await titles(service)).toEqual(["a", "b"]);
    },
  );

  const ABSENT = "http://127.0.0.1:1";
  test.each<[what: string, args: string[], variables: Record<string, string>, code: number, says: string]>([
    ["no server at a flag's URL", ["list", "--url", ABSENT], {}, 1, "is the service running? Check --url"],
    ["no server at a variable's URL", ["list"], { TODO_URL: ABSENT }, 1, "running? Check TODO_URL"],
    ["an absent to-do", ["done", "1", "2"], {}, 3, "to-do not found: 1, 2; run todo list"],
    ["an absent to-do to show", ["show", "1"], {}, 3, "to-do not found: 1; run todo list"],
    ["an invalid limit", ["list", "--limit", "0"], {}, 2, '--limit "0": must be a whole number from 1 to'],
    ["an invalid token", ["whoami"], { TODO_TOKEN: "hunter 2" }, 2, "TODO_TOKEN: must be visible ASCII"],
    ["an invalid id", ["rm", "1", "x"], {}, 2, '"x" is not an id'],
    ["an empty title", ["add", " "], {}, 2, "the title must not be empty"],
    ["two filters", ["list", "--open", "--done"], {}, 2, "keep one"],
    ["a batch without a name", ["add", "-", "--batch", ""], {}, 2, "--batch needs a name"],
    ["a batch without lines", ["add", "a", "--batch", "b"], {}, 2, "todo add -"],
    ["an invalid URL", ["list"], { TODO_URL: "a:3000" }, 2, 'TODO_URL "a:3000": must be the URL'],
    ["a URL with a password", ["list"], { TODO_URL: "http://u:hunter2@h/" }, 2, 'TODO_URL "…@h/": must be'],
    ["another such URL", ["list"], { TODO_URL: "http:u:hunter2@h" }, 2, 'TODO_URL "…@h": must be the URL'],
    ["a URL with a secret", ["list", "--url", "http://h?k=hunter2"], {}, 2, '--url "http://h…": must be the'],
    ["a token as a flag", ["whoami", "--token", "x"], {}, 2, "unknown option '--token'"],
  ])("reports %s with a hint", async (_what, args, variables, code, says) => {
    await using service = await start();
    const said = await complaintOf(callTodo(args, { TODO_URL: service.url, ...variables }), code);
    expect(said).toContain(says);
    expect(said).not.toContain("hunter");
  });

  test.skipIf(skipFor(whyServed))("says how to start a service if none runs at the default URL", async () => {
    expect(await complaintOf(callTodo(["list"]), 1)).toContain(
      "start the service with npm start, or set --url or TODO_URL",
    );
  });

  test("reports how to correct the scheme or the path of the URL", async () => {
    await using service = await start();
    const secure = Bun.serve({ ...LOOPBACK, tls: makeCertificate(), fetch: () => new Response() });
    for (const [url, says] of [
      [service.url.replace("http:", "https:"), "does not use TLS: write http:// in TODO_URL"],
      [secure.url.href.replace("https:", "http:"), "if the service uses TLS, write https:// in TODO_URL"],
      [`${service.url}/api`, "/api is not the address of the service: leave out the path in TODO_URL"],
    ] as const)
      expect(await fails({ url }, ["list"], 1)).toContain(says);
    await secure.stop(true);
  });

  const TEAPOT = { title: "No\x1b]0;owned\x07", status: 418, code: "teapot", detail: "\u202egpj" };
  test.each<[what: string, respond: () => Response, says: string]>([
    [
      "a proxy that cannot reach the service",
      () => new Response("<h1>Bad Gateway", { status: 502 }),
      "the proxy cannot reach the to-do service (status 502)",
    ],
    [
      "another kind of service",
      () => new Response("<h1>Hello"),
      "is not a to-do service (status 200): check TODO_URL",
    ],
    [
      "a redirect, which it does not follow, because another origin would get the title",
      () => Response.redirect("http://127.0.0.1:1/x", 307),
      "unexpected redirect to http://127.0.0.1:1/x: set --url or TODO_URL to the address of the service",
    ],
    [
      "an error, with escaped control characters",
      () => Response.json(TEAPOT, { status: 418 }),
      "No<U+001B>]0;owned<U+0007>: <U+202E>gpj (teapot)",
    ],
  ])("reports %s", async (_what, respond, says) => {
    const other = Bun.serve({ ...LOOPBACK, fetch: respond });
    for (const args of [["list"], ["add", "a"]])
      expect(await fails({ url: other.url.href }, args, 1)).toEndWith(says);
    await other.stop(true);
  });
});

describe("with a private service, todo", () => {
  const startPrivate = (): TestService =>
    startService({
      access: { privateMode: true },
      credentials: {
        lookupClient: (token) => {
          if (token === TOKEN) return { name: "alice" };
          return token === "reader" ? { name: "bob", scope: "read" } : undefined;
        },
      },
    });
  const todoWith = (service: TestService, TODO_TOKEN: string, line: string) =>
    callTodo(line.split(" "), { TODO_URL: service.url, TODO_TOKEN }, "a line\n");

  test.each<[line: string, token: string, reason: string]>([
    ["list", "", "TODO_TOKEN is not set"],
    ["add -", "", "TODO_TOKEN is not set"],
    ["add x", "wrong", "the token in TODO_TOKEN is not valid"],
    ["watch", "wrong", "the token in TODO_TOKEN is not valid"],
    ["whoami", "wrong", "the token in TODO_TOKEN is not valid"],
  ])("%s with the token %p reports that it needs a token", async (line, token, reason) => {
    await using service = startPrivate();
    const { code, stdout, stderr } = await todoWith(service, token, line);
    expect([code, stdout]).toEqual([4, ""]);
    expect(stderr).toStartWith(
      `todo: ${reason}: run todo login ${service.url} with a token, or set TODO_TOKEN to one; todo keys create NAME prints one\n`,
    );
  });

  test("list accepts a token with the scope read, and done reports why it cannot write", async () => {
    await using service = startPrivate();
    await todoWith(service, TOKEN, "add mine");
    expect((await todoWith(service, "reader", "list")).stdout).toContain("mine");
    expect(await complaintOf(todoWith(service, "reader", "done 1"), 1)).toBe(
      "the token in TODO_TOKEN may only read: use the token of an API key with the scope write, such as one that todo keys create NAME prints",
    );
  });
});

describe("in a terminal, todo", () => {
  const open = ({ url }: Served, line: string): CalledTodo =>
    startTodo(line.split(" "), { TODO_URL: url }, { columns: 60 });
  /** Returns what a command shows, without colors, because these depend on the variables of this process. */
  async function shown(service: Served, line: string): Promise<string> {
    const { code, stdout, stderr } = await open(service, line).ended;
    expect([code, stderr]).toEqual([0, ""]);
    return Bun.stripANSI(stdout);
  }
  const widest = (text: string) =>
    Math.max(
      ...Bun.stripANSI(text)
        .split("\n")
        .map((line) => Bun.stringWidth(line)),
    );

  test("list prints a table that fits the width, with escaped control characters", async () => {
    await using service = await start("buy milk", "日本語".repeat(20), EVIL);
    await markDone(service);
    expect(await shown(service, "list")).toBe(
      [
        `${FIRST}  [x]  buy milk\n`,
        `${SECOND}  [ ]  日本語日本語日本語日本語日本語日…\n`,
        `${THIRD}  [ ]  <U+001B>]0;owned<U+0007> <U+202E>…\n`,
      ].join(""),
    );
  });

  test("add, done, list and watch print one line per to-do, and show prints the complete title", async () => {
    await using service = startService();
    for (const title of ["x".repeat(120), "e\u0301".repeat(60), "👨‍👩‍👧".repeat(15), "a b ".repeat(29)])
      await add(service, title);
    const lines = [
      await shown(service, `add ${"日本語".repeat(40)}`),
      await shown(service, "done 1 2 3 4 5"),
      await shown(service, "list"),
    ].join("");
    expect(lines).toStartWith("added 5  [ ]  日本");
    expect([lines.split("\n").length - 1, widest(lines)]).toEqual([1 + 5 + 5, 60]);
    expect(await shown(service, "show 2")).toBe(`2  [x]  ${"e\u0301".repeat(60)}\n`);
    const watching = open(service, "watch");
    await prints(watching, "5  [x]  日本");
    await service.send("DELETE", "/api/todos/1");
    await prints(watching, "deleted 1 xxx");
    watching.interrupt();
    expect(widest((await watching.ended).stdout)).toBe(60);
  });

  test("list prints a message for an empty list, or for one without to-dos in a state, and aligns titles", async () => {
    await using service = startService({ store: openMemory({ lastId: 8n }) });
    expect(await shown(service, "list")).toBe("No to-dos yet. To add one, run: todo add buy milk\n");
    await add(service, "a");
    expect(await shown(service, "list --done")).toBe("No to-dos are done.\n");
    await markDone(service, "9");
    expect(await shown(service, "list --open")).toBe("No to-dos are open.\n");
    await add(service, "b");
    expect(await shown(service, "list")).toBe(" 9  [x]  a\n10  [ ]  b\n");
  });

  test.skipIf(skipFor(whyNoTerminal)).each<[variables: Record<string, string>, isColored: boolean]>([
    [{}, true],
    [{ NO_COLOR: "1" }, false],
    [{ TERM: "dumb", FORCE_COLOR: "1" }, true],
  ])("with %j has colors: %p", async (variables, isColored) => {
    await using service = await start("a");
    const line = `"$BUN" --no-env-file src/cli/main.ts done ${FIRST}`;
    await using terminal = openTerminal(line, { TODO_URL: service.url, ...variables });
    expect(await terminal.exited).toBe(0);
    const row = `${FIRST}  [x]  a`;
    expect(terminal.shown()).toBe(isColored ? `\x1b[2m${row}\x1b[22m\n` : `${row}\n`);
  });

  test("watch shows the list and each change until Ctrl-C, also after a lost connection", async () => {
    await using service = await start(EVIL);
    await using proxy = await startFaultyProxy(service.port, () => "pass");
    const watching = open(proxy, "watch");
    await prints(watching, `${FIRST}  [ ]  <U+001B>`);
    // Bun repeats a request whose connection ends before the response, so wait for an event.
    await add(service, "live");
    await prints(watching, `${SECOND}  [ ]  live`);
    proxy.cut();
    await prints(watching, `todo: lost the connection to ${proxy.url}; reconnecting\ntodo: reconnected\n`);
    await markDone(service, SECOND);
    await prints(watching, `${SECOND}  [x]  live`);
    proxy.cut();
    await until(() => watching.stderr().split("; reconnecting").length > 2, "it reconnects again");
    await service.send("DELETE", `/api/todos/${FIRST}`);
    await prints(watching, `deleted ${FIRST} <U+001B>`);
    watching.interrupt();
    const { code, stdout } = await watching.ended;
    expect(code).toBe(130);
    for (const character of ["\x07", "\u202e", "\x9b"]) expect(stdout).not.toContain(character);
  });

  test("watch continues after missed changes: it shows the list again, and with --json it reports them", async () => {
    await using service = await startForgetful();
    const watching = open(service, "watch");
    const inJson = open(service, "watch --json");
    await service.asked(4);
    // Bun repeats a request whose connection ends before the response, so wait for an event.
    await service.add("first");
    for (const one of [watching, inJson]) await prints(one, "first");
    await service.addWhileAway("a", "b", "c");
    await prints(watching, "todo: some changes were missed; this is the current list\n");
    await prints(watching, "4  [ ]  c");
    await prints(inJson, '{"type":"resync","position":"');
    // Nothing shows when watch has read a new list, so add to-dos until it prints one.
    await until(async () => {
      await service.add("later");
      return inJson.stdout().includes("later");
    }, "it prints a later to-do");
    for (const one of [watching, inJson]) {
      one.interrupt();
      await one.ended;
    }
  });
});
