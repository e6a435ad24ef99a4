import { describe, expect, test } from "bun:test";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { callTodo } from "../../../test/call-todo.ts";
import { makeCertificate } from "../../../test/certificate.ts";
import { ended, type Outcome, run, runTodo } from "../../../test/command.ts";
import { type FaultyProxy, startFaultyProxy } from "../../../test/faulty-proxy.ts";
import { startService, type TestService } from "../../../test/service.ts";
import { skipFor, whyNoFile } from "../../../test/skip.ts";
import { openTerminal, whyNoTerminal } from "../../../test/terminal.ts";
import { listenTls } from "../../http/listener/listen.ts";
import { parseCertificate } from "../../http/listener/tls.ts";
import { createService } from "../../http/service.ts";
import { openMemory } from "../../storage/memory/store.ts";

const TOKEN = "t0ken";
const start = (): TestService =>
  startService({
    store: openMemory({ lastId: 2n ** 63n - 1n }),
    credentials: { lookupClient: (token) => (token === TOKEN ? { name: "alice\x1b[31m" } : undefined) },
  });
const [FIRST, SECOND, THIRD] = ["9223372036854775808", "9223372036854775809", "9223372036854775810"];
const EVIL = "\x1b]0;owned\x07 \u202egpj.exe \x9b31m";

/** Starts a service that keeps one event, behind a proxy. After a lost connection, clients miss changes. */
async function startForgetful() {
  const service = startService({ store: openMemory({ maxEvents: 1 }) });
  let isAway = false;
  const proxy = await startFaultyProxy(service.port, () => (isAway ? "refuse" : "pass"));
  const add = (title: string): Promise<Response> => service.sendJson("POST", "/api/todos", { title });
  return {
    url: proxy.url,
    add,
    addWhileAway: async (...titles: readonly string[]): Promise<void> => {
      isAway = true;
      proxy.cut();
      for (const title of titles) await add(title);
      isAway = false;
    },
    /** Resolves after this many requests. */
    asked: (times: number): Promise<void> => passed(proxy, times),
    [Symbol.asyncDispose]: async () => {
      await proxy[Symbol.asyncDispose]();
      await service[Symbol.asyncDispose]();
    },
  };
}

async function passed(proxy: FaultyProxy, requests: number): Promise<void> {
  while ((proxy.struck().pass ?? 0) < requests) await Bun.sleep(10);
}

/** Runs `todo` with pipes instead of a terminal. */
const todo = ({ url }: { readonly url: string }, args: readonly string[], input?: string): Promise<Outcome> =>
  callTodo(args, { TODO_URL: url }, input);

const titles = async (service: TestService): Promise<string[]> => {
  const response = await service.send("GET", "/api/todos");
  return JSON.parse(await response.text()).map(({ title }: { readonly title: string }) => title);
};

describe("over HTTPS, todo", () => {
  test("reports an untrusted certificate, and accepts a certificate in NODE_EXTRA_CA_CERTS", async () => {
    const folder = await mkdtemp(join(tmpdir(), "todo-trust-"));
    const { cert, key } = makeCertificate();
    const service = createService({ store: openMemory() });
    const listener = listenTls(service, parseCertificate(cert, key), { host: "127.0.0.1", port: 0 });
    try {
      const { code, stderr } = await todo(listener, ["list"]);
      expect([code, stderr]).toEqual([1, expect.stringContaining("NODE_EXTRA_CA_CERTS")]);
      await Bun.write(join(folder, "ca.pem"), cert);
      const variables = { TODO_URL: listener.url, NODE_EXTRA_CA_CERTS: join(folder, "ca.pem") };
      // The runtime reads this variable at its start.
      const trusting = await ended(runTodo(["add", "buy milk"], variables));
      expect([trusting.code, trusting.stderr]).toEqual([0, ""]);
    } finally {
      await listener.abort();
      await rm(folder, { recursive: true });
    }
  });
});

const isDefaultPortUsed = await fetch("http://127.0.0.1:3000").then(
  () => true,
  () => false,
);
const whyServed = isDefaultPortUsed ? "another program serves port 3000" : undefined;

describe("in a pipe, todo", () => {
  test("--json prints each to-do that it adds, marks, deletes or lists as a line with the exact id", async () => {
    await using service = start();
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
    expect(await lines("list", "--done")).toEqual([`{"id":${FIRST},"title":"buy milk","done":true}`]);
    expect(await lines("list", "--open")).toHaveLength(1);
    expect(await lines("show", FIRST)).toEqual([`{"id":${FIRST},"title":"buy milk","done":true}`]);
    expect(await lines("rm", FIRST)).toEqual([`{"id":${FIRST}}`]);
    expect(await lines("list")).toHaveLength(1);
    expect(await titles(service)).toEqual([EVIL]);
  });

  test("list --limit prints the first to-dos, even more than one page of them", async () => {
    const store = openMemory({ lastId: 2n ** 63n - 1n });
    for (let n = 1; n <= 1003; n++) await store.insert(`${n}`);
    await using service = startService({ store });
    await service.sendJson("PATCH", `/api/todos/${FIRST}`, { done: true });
    const listed = async (...args: readonly string[]): Promise<string[]> => {
      const { code, stdout, stderr } = await todo(service, ["list", "--json", ...args]);
      expect([code, stderr]).toEqual([0, ""]);
      return stdout.split("\n").slice(0, -1);
    };
    expect((await listed("--limit", "2")).map((line) => JSON.parse(line).title)).toEqual(["1", "2"]);
    expect((await listed("--limit", "1", "--open")).map((line) => JSON.parse(line).title)).toEqual(["2"]);
    const many = await listed("--limit", "1002");
    expect(many).toHaveLength(1002);
    expect(many.at(-1)).toContain('"title":"1002"');
    expect(await listed("--limit", "5000")).toHaveLength(1003);
  });

  test("list prints the to-dos whose titles contain all the words, as does ls", async () => {
    await using service = start();
    for (const title of ["buy milk", "Café: buy", "walk"])
      await service.sendJson("POST", "/api/todos", { title });
    const found = async (...args: readonly string[]): Promise<string[]> =>
      (await todo(service, args)).stdout.split("\n").map((line) => line.replace(/^\d+ {2}/, ""));
    expect(await found("list", "BUY", "cafe")).toEqual(["[ ]  Café: buy", ""]);
    const more = "More to-dos follow. To show them, raise --limit.";
    expect(await found("ls", "buy", "--limit", "1")).toEqual(["[ ]  buy milk", more, ""]);
    expect(await found("ls", "tea")).toEqual(["No to-dos match.", ""]);
  });

  test("prints plain text and does not truncate titles", async () => {
    await using service = start();
    const title = "日本 e\u0301".repeat(20);
    const row = `${FIRST}  [ ]  ${title}\n`;
    expect((await todo(service, ["add", title])).stdout).toBe(`added ${row}`);
    for (const args of [["show", FIRST], ["list"]]) expect((await todo(service, args)).stdout).toBe(row);
  });

  test("adds all lines that are not blank, in order, and adds no line twice with the same --batch", async () => {
    await using service = start();
    expect(
      (await todo(service, ["add", "-", "--batch", "a"], "one\ntwo\r\n\n\u0085\n\ufeff \t\none\n")).code,
    ).toBe(0);
    expect((await todo(service, ["add", "-", "--batch", "a"], "zero\none\ntwo\none\none")).code).toBe(0);
    expect(await titles(service)).toEqual(["one", "two", "one", "zero", "one"]);
    for (const _ of [1, 2]) expect((await todo(service, ["add", "-"], "again\n")).code).toBe(0);
    expect((await titles(service)).slice(5)).toEqual(["again", "again"]);
  });

  test("adds nothing if one of the lines is invalid", async () => {
    await using service = start();
    const { code, stderr } = await todo(service, ["add", "-"], `fine\n\n${"x".repeat(121)}\n`);
    expect([code, stderr]).toEqual([2, "todo: nothing was added: line 3: must be at most 120 characters\n"]);
    expect(await titles(service)).toEqual([]);
  });

  test("adds every line once through an unreliable network", async () => {
    await using service = start();
    const faults = ["lose", "pass", "cut", "refuse", "pass", "twice"] as const;
    let count = 0;
    await using proxy = await startFaultyProxy(service.port, () => faults[count++ % faults.length] ?? "pass");
    const lines = Array.from({ length: 12 }, (_, n) => `line ${n}`);
    expect((await todo(proxy, ["add", "-"], lines.join("\n"))).code).toBe(0);
    expect(await titles(service)).toEqual(lines);
  });

  test("reports how to continue after an interrupted add", async () => {
    await using service = start();
    let isThrottled = false;
    await using proxy = await startFaultyProxy(service.port, () => (isThrottled ? "throttle" : "late"));
    await using broken = runTodo(["add", "-", "--json"], { TODO_URL: proxy.url }, "a\nb\nc\nd\n");
    while (broken.stdout().split("\n").length < 3) await Bun.sleep(10);
    isThrottled = true;
    broken.kill("SIGINT");
    expect(await broken.exited).toBe(130);
    const [, batch = ""] =
      /[23] of 4 lines were added; .*: todo add - --batch (\w+)$/m.exec(broken.stderr()) ?? [];
    expect((await todo(service, ["add", "-", "--batch", batch], "a\nb\nc\nd\n")).code).toBe(0);
    expect(await titles(service)).toEqual(["a", "b", "c", "d"]);
  });

  test("whoami --json prints the name of the token's client", async () => {
    await using service = start();
    const said = await callTodo(["whoami", "--json"], { TODO_URL: service.url, TODO_TOKEN: TOKEN });
    expect(said).toEqual({ code: 0, stdout: '{"name":"alice\\u001b[31m"}\n', stderr: "" });
  });

  test("watch --json prints changes until Ctrl-C, and exits with 130", async () => {
    await using service = start();
    await using watching = runTodo(["watch", "--json"], { TODO_URL: service.url });
    // Nothing shows when watch is connected, so add to-dos until it prints one.
    let id = "";
    while (watching.stdout() === "") {
      const response = await service.sendJson("POST", "/api/todos", { title: "a" });
      id = /\d+/.exec(await response.text())?.[0] ?? "";
      await Bun.sleep(200);
    }
    await service.send("DELETE", `/api/todos/${id}`);
    while (!watching.stdout().includes("deleted")) await Bun.sleep(10);
    watching.kill("SIGINT");
    expect([await watching.exited, watching.stderr()]).toEqual([130, "todo: interrupted\n"]);
    const [first, ...rest] = watching.stdout().trimEnd().split("\n");
    expect(first).toMatch(
      /^\{"type":"created","position":"\w+-\d+","todo":\{"id":\d{19},"title":"a","done":false\}\}$/,
    );
    expect(rest.at(-1)).toMatch(new RegExp(`^\\{"type":"deleted","position":"\\w+-\\d+","id":${id}\\}$`));
  });

  test("watch --json continues after missed changes, and reports them", async () => {
    await using service = await startForgetful();
    await using watching = runTodo(["watch", "--json"], { TODO_URL: service.url });
    await service.asked(2);
    await service.addWhileAway("a", "b", "c");
    // watch has read a new list.
    await service.asked(5);
    await service.add("later");
    while (!watching.stdout().includes("later")) await Bun.sleep(10);
    expect(watching.stdout()).toMatch(
      /^\{"type":"resync","position":"\w+-\d+"\}\n\{"type":"created",.*"title":"later".*\}\n$/,
    );
  });

  test("exits with 0 and without a message when the reader of the pipe closes it", async () => {
    await using service = start();
    for (let n = 0; n < 2000; n++) await service.sendJson("POST", "/api/todos", { title: "x".repeat(100) });
    const line = `"${process.execPath}" --no-env-file src/cli/main.ts list --json | head -n 1`;
    const { code, stdout, stderr } = await ended(
      run(["bash", "-o", "pipefail", "-c", line], { TODO_URL: service.url }),
    );
    expect([code, stdout, stderr]).toEqual([0, expect.stringMatching(/^\{"id":.*\}\n$/), ""]);
  });

  test("add adds all lines even if the reader of the pipe has closed it", async () => {
    await using service = start();
    const line = `"${process.execPath}" --no-env-file src/cli/main.ts add - | true; echo "\${PIPESTATUS[0]}"`;
    const lines = Array.from({ length: 300 }, (_, n) => `line ${n}`);
    const added = await ended(run(["bash", "-c", line], { TODO_URL: service.url }, lines.join("\n")));
    expect(added).toEqual({ code: 0, stdout: "0\n", stderr: "" });
    expect(await titles(service)).toEqual(lines);
  });

  test.skipIf(skipFor(whyNoFile("/dev/full"))).each(["list", "add b", "watch --json"])(
    "reports that its output cannot be written: todo %s",
    async (args) => {
      await using service = start();
      await service.sendJson("POST", "/api/todos", { title: "a" });
      const line = `exec "$0" --no-env-file src/cli/main.ts ${args} > /dev/full`;
      await using command = run(["sh", "-c", line, process.execPath], { TODO_URL: service.url });
      // watch writes nothing before the first change.
      while (args.startsWith("watch") && command.stderr() === "") {
        await service.sendJson("POST", "/api/todos", { title: "c" });
        await Bun.sleep(100);
      }
      expect([await command.exited, command.stdout()]).toEqual([1, ""]);
      expect(command.stderr()).toMatch(/^todo: standard output: ENOSPC.*\n$/);
      if (args === "add b") expect(await titles(service)).toEqual(["a", "b"]);
    },
  );

  test("add rejects input that is not UTF-8", async () => {
    await using service = start();
    const bytes = Buffer.from("fine\ncaf\xe9\n", "latin1");
    const { code, stderr } = await callTodo(["add", "-"], { TODO_URL: service.url }, bytes);
    expect([code, stderr]).toEqual([
      2,
      "todo: nothing was added: standard input: it is not UTF-8: convert it to UTF-8\n",
    ]);
    expect(await titles(service)).toEqual([]);
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
    ["no server at a flag's URL", ["list", "--url", "http://127.0.0.1:1"], {}, 1, "running? Check --url\n"],
    ["no server at a variable's URL", ["list"], { TODO_URL: "http://127.0.0.1:1" }, 1, "Check TODO_URL\n"],
    ["an absent to-do", ["done", "1", "2"], {}, 3, "to-do not found: 1, 2; run todo list"],
    ["an absent to-do to show", ["show", "1"], {}, 3, "to-do not found: 1; run todo list"],
    ["an invalid limit", ["list", "--limit", "0"], {}, 2, '--limit "0": must be a whole number from 1 to'],
    ["no token", ["whoami"], {}, 4, "TODO_TOKEN is not set"],
    ["a wrong token", ["whoami"], { TODO_TOKEN: "other" }, 4, "the token in TODO_TOKEN is not valid"],
    ["an invalid token", ["whoami"], { TODO_TOKEN: "hunter 2" }, 2, "TODO_TOKEN: must be visible ASCII"],
    ["an invalid id", ["rm", "1", "x"], {}, 2, '"x" is not an id'],
    ["an empty title", ["add", " "], {}, 1, "the title must not be empty"],
    ["two filters", ["list", "--open", "--done"], {}, 2, "keep one"],
    ["a batch without a name", ["add", "-", "--batch", ""], {}, 2, "--batch needs a name"],
    ["a batch without lines", ["add", "a", "--batch", "b"], {}, 2, "todo add -"],
    [
      "an invalid URL",
      ["list"],
      { TODO_URL: "localhost:3000" },
      2,
      'TODO_URL "localhost:3000": must be the URL',
    ],
    [
      "a URL with a password",
      ["list"],
      { TODO_URL: "http://u:hunter2@h/" },
      2,
      'TODO_URL "…@h/": must be the URL',
    ],
    ["another such URL", ["list"], { TODO_URL: "http:u:hunter2@h" }, 2, 'TODO_URL "…@h": must be the URL'],
    [
      "a URL with a secret",
      ["list", "--url", "http://h?k=hunter2"],
      {},
      2,
      '--url "http://h…": must be the URL',
    ],
    ["a token as a flag", ["whoami", "--token", "x"], {}, 2, "unknown option '--token'"],
  ])("reports %s with a hint", async (_what, args, variables, code, says) => {
    await using service = start();
    const said = await callTodo(args, { TODO_URL: service.url, ...variables });
    expect([said.code, said.stdout]).toEqual([code, ""]);
    expect(said.stderr).toStartWith("todo: ");
    expect(said.stderr).toContain(says);
    expect(said.stderr).not.toContain("hunter");
  });

  test.skipIf(skipFor(whyServed))(
    "reports how to start a service if no service runs at the default URL",
    async () => {
      const said = await callTodo(["list"]);
      expect([said.code, said.stdout]).toEqual([1, ""]);
      expect(said.stderr).toStartWith("todo: ");
      expect(said.stderr).toContain("start the service with npm start, or set --url or TODO_URL");
    },
  );

  test("reports how to correct the scheme or the path of the URL", async () => {
    await using service = start();
    const { cert, key } = makeCertificate();
    const secure = Bun.serve({
      hostname: "127.0.0.1",
      port: 0,
      tls: { cert, key },
      fetch: () => new Response(),
    });
    for (const [url, says] of [
      [service.url.replace("http:", "https:"), "does not use TLS: write http:// in TODO_URL"],
      [secure.url.href.replace("https:", "http:"), "if the service uses TLS, write https:// in TODO_URL"],
      [`${service.url}/api`, "/api is not the address of the service: leave out the path in TODO_URL"],
    ] as const) {
      const { code, stderr } = await todo({ url }, ["list"]);
      expect([code, stderr]).toEqual([1, expect.stringContaining(says)]);
    }
    await secure.stop(true);
  });

  test("reports that a proxy cannot reach the service", async () => {
    const answer = () => new Response("<h1>Bad Gateway", { status: 502 });
    const proxy = Bun.serve({ hostname: "127.0.0.1", port: 0, fetch: answer });
    const { code, stderr } = await todo({ url: proxy.url.href }, ["list"]);
    await proxy.stop(true);
    expect([code, stderr]).toEqual([1, "todo: the proxy cannot reach the to-do service (status 502)\n"]);
  });

  test("reports that another kind of service responds", async () => {
    const other = Bun.serve({ hostname: "127.0.0.1", port: 0, fetch: () => new Response("<h1>Hello") });
    const { code, stderr } = await todo({ url: other.url.href }, ["list"]);
    await other.stop(true);
    expect([code, stderr]).toEqual([1, expect.stringContaining("is not a to-do service (status 200)")]);
  });

  test("follows no redirects, so another origin gets no title", async () => {
    let received = 0;
    const other = Bun.serve({
      hostname: "127.0.0.1",
      port: 0,
      fetch: () => {
        received++;
        return Response.json([]);
      },
    });
    const target = `${other.url.href}x`;
    const redirecting = Bun.serve({
      hostname: "127.0.0.1",
      port: 0,
      fetch: () => Response.redirect(target, 307),
    });
    for (const args of [["list"], ["add", "secret"]]) {
      const { code, stderr } = await todo({ url: redirecting.url.href }, args);
      expect([code, stderr]).toEqual([1, expect.stringContaining(`unexpected redirect to ${target}`)]);
      expect(stderr).toContain("TODO_URL");
    }
    await redirecting.stop(true);
    await other.stop(true);
    expect(received).toBe(0);
  });

  test("escapes control characters in responses", async () => {
    const problem = { title: "No\x1b]0;owned\x07", status: 418, code: "teapot", detail: "\u202egpj" };
    const fetch = () => Response.json(problem, { status: 418 });
    const other = Bun.serve({ hostname: "127.0.0.1", port: 0, fetch });
    const { code, stderr } = await todo({ url: other.url.href }, ["list"]);
    await other.stop(true);
    expect([code, stderr]).toEqual([1, "todo: No<U+001B>]0;owned<U+0007>: <U+202E>gpj (teapot)\n"]);
  });
});

/** Starts a private service with a client that may write, and one that may only read. */
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

describe("with a private service, todo", () => {
  const todoWith = (service: TestService, token: string | undefined, args: readonly string[]) =>
    callTodo(args, { TODO_URL: service.url, ...(token !== undefined && { TODO_TOKEN: token }) });

  test.each<[line: string, token: string | undefined, reason: string]>([
    ["list", undefined, "TODO_TOKEN is not set"],
    ["add x", "wrong", "the token in TODO_TOKEN is not valid"],
    ["watch", "wrong", "the token in TODO_TOKEN is not valid"],
  ])("%s with the token %p reports that it needs a token", async (line, token, reason) => {
    await using service = startPrivate();
    expect(await todoWith(service, token, line.split(" "))).toEqual({
      code: 4,
      stdout: "",
      stderr: `todo: ${reason}: run todo login ${service.url} with a token, or set TODO_TOKEN to one; todo keys create NAME prints one\n`,
    });
  });

  test("add - exits with 4 if it needs a token", async () => {
    await using service = startPrivate();
    expect((await todo(service, ["add", "-"], "a\n")).code).toBe(4);
  });

  test("list accepts a token with the scope read, and done reports why it cannot write", async () => {
    await using service = startPrivate();
    await todoWith(service, TOKEN, ["add", "mine"]);
    expect((await todoWith(service, "reader", ["list"])).stdout).toContain("mine");
    expect(await todoWith(service, "reader", ["done", "1"])).toEqual({
      code: 1,
      stdout: "",
      stderr:
        "todo: the token in TODO_TOKEN may only read: use the token of an API key with the scope write, such as one that todo keys create NAME prints\n",
    });
  });
});

describe.skipIf(skipFor(whyNoTerminal))("in a terminal, todo", () => {
  const TODO = '"$BUN" --no-env-file src/cli/main.ts';

  async function shown(
    service: TestService,
    line: string,
    variables: Readonly<Record<string, string>> = {},
    columns?: number,
  ) {
    const all = { TODO_URL: service.url, ...variables };
    await using terminal = openTerminal(line.replaceAll("todo", TODO), all, columns);
    expect(await terminal.exited).toBe(0);
    return terminal.shown();
  }

  test("list prints a table that fits the width, with escaped control characters", async () => {
    await using service = start();
    for (const title of ["buy milk", "日本語".repeat(20), EVIL])
      await service.sendJson("POST", "/api/todos", { title });
    await service.sendJson("PATCH", `/api/todos/${FIRST}`, { done: true });
    expect(await shown(service, "todo list")).toBe(
      [
        `\x1b[2m${FIRST}  [x]  buy milk\x1b[22m\n`,
        `${SECOND}  [ ]  日本語日本語日本語日本語日本語日…\n`,
        `${THIRD}  [ ]  <U+001B>]0;owned<U+0007> <U+202E>…\n`,
      ].join(""),
    );
  });

  test("add, done, list and watch print one line per to-do, and show the complete title", async () => {
    const columns = 60;
    await using service = startService();
    for (const title of ["x".repeat(120), "e\u0301".repeat(60), "👨‍👩‍👧".repeat(15), "a b ".repeat(29)])
      await service.sendJson("POST", "/api/todos", { title });
    const line = `todo add '${"日本語".repeat(40)}'; todo done 1 2 3 4 5; todo list`;
    const lines = await shown(service, line, {}, columns);
    expect(lines).toContain("added 5  [ ]  日本");
    const shownWidths = lines.split("\n").map((line) => Bun.stringWidth(line));
    expect(shownWidths).toHaveLength(1 + 5 + 5 + 1);
    expect(Math.max(...shownWidths)).toBeLessThanOrEqual(columns);
    expect((await shown(service, "todo show 2", {}, columns)).replaceAll(/\s/g, "")).toContain(
      "e\u0301".repeat(60),
    );
    await using watching = openTerminal(`exec ${TODO} watch`, { TODO_URL: service.url }, columns);
    await watching.shows("5  [x]  日本");
    while (!watching.shown().includes("deleted")) {
      await service.send("DELETE", "/api/todos/1");
      await Bun.sleep(100);
    }
    const widths = watching
      .shown()
      .split("\n")
      .map((line) => Bun.stringWidth(line));
    expect(Math.max(...widths)).toBeLessThanOrEqual(columns);
  });

  test("list reports that no to-do has the state", async () => {
    await using service = startService();
    await service.sendJson("POST", "/api/todos", { title: "a" });
    expect(await shown(service, "todo list --done")).toBe("No to-dos are done.\n");
    await service.sendJson("PATCH", "/api/todos/1", { done: true });
    expect(await shown(service, "todo list --open")).toBe("No to-dos are open.\n");
  });

  test.each<[variables: Readonly<Record<string, string>>, isColoured: boolean]>([
    [{ NO_COLOR: "1" }, false],
    [{ TERM: "dumb", FORCE_COLOR: "1" }, true],
  ])("with %j has colors: %p", async (variables, isColoured) => {
    await using service = start();
    await service.sendJson("POST", "/api/todos", { title: "a" });
    const text = await shown(service, `todo done ${FIRST}`, variables);
    expect(text).toBe(isColoured ? `\x1b[2m${FIRST}  [x]  a\x1b[22m\n` : `${FIRST}  [x]  a\n`);
  });

  test("whoami escapes control characters in the name of a client", async () => {
    await using service = start();
    const text = await shown(service, "todo whoami", { TODO_TOKEN: TOKEN });
    expect(text).toBe("alice<U+001B>[31m\n");
  });

  test("aligns titles for ids of different lengths", async () => {
    await using service = startService({ store: openMemory({ lastId: 8n }) });
    for (const title of ["a", "b"]) await service.sendJson("POST", "/api/todos", { title });
    expect(await shown(service, "todo list")).toBe(" 9  [ ]  a\n10  [ ]  b\n");
  });

  test("prints a message for an empty list, and the added to-do", async () => {
    await using service = start();
    const text = await shown(service, "todo list; todo add buy milk");
    expect(text).toBe(`No to-dos yet. To add one, run: todo add buy milk\nadded ${FIRST}  [ ]  buy milk\n`);
  });

  test("watch shows the list and each change until Ctrl-C, also after a lost connection", async () => {
    await using service = start();
    await using proxy = await startFaultyProxy(service.port, () => "pass");
    await service.sendJson("POST", "/api/todos", { title: EVIL });
    await using terminal = openTerminal(`exec ${TODO} watch`, { TODO_URL: proxy.url });
    await terminal.shows(`${FIRST}  [ ]  <U+001B>`);
    // Bun repeats a request whose connection ends before the response, so wait for an event.
    await service.sendJson("POST", "/api/todos", { title: "live" });
    await terminal.shows(`${SECOND}  [ ]  live`);
    proxy.cut();
    await terminal.shows("; reconnecting");
    await terminal.shows("reconnected");
    await service.sendJson("PATCH", `/api/todos/${SECOND}`, { done: true });
    await terminal.shows(`${SECOND}  [x]  live`);
    proxy.cut();
    await terminal.shows("; reconnecting", 2);
    await service.send("DELETE", `/api/todos/${FIRST}`);
    await terminal.shows(`deleted ${FIRST} <U+001B>`);
    terminal.type("\x03");
    expect(await terminal.exited).toBe(130);
    for (const character of ["\x07", "\u202e", "\x9b"]) expect(terminal.shown()).not.toContain(character);
  });

  test("watch shows the list again after missed changes", async () => {
    await using service = await startForgetful();
    await using terminal = openTerminal(`exec ${TODO} watch`, { TODO_URL: service.url });
    await service.asked(2);
    await service.addWhileAway("a", "b", "c");
    await terminal.shows("some changes were missed; this is the current list");
    await terminal.shows("3  [ ]  c");
  });

  test("add exits at Ctrl-C while it waits for lines", async () => {
    await using service = start();
    await using terminal = openTerminal(`exec ${TODO} add -`, { TODO_URL: service.url });
    terminal.type("half\n");
    await terminal.shows("half");
    await Bun.sleep(500);
    terminal.type("\x03");
    expect(await terminal.exited).toBe(130);
    expect(await titles(service)).toEqual([]);
  });
});
