import { describe, expect, test } from "bun:test";
import { PassThrough, Writable } from "node:stream";
import { version } from "../../package.json" with { type: "json" };
import { runTodo } from "../../test/command.ts";
import { freePort } from "../../test/free-port.ts";
import {
  callTool,
  isModern,
  PROTOCOL_VERSIONS,
  startStdioClient,
  startStdioServer,
} from "../../test/mcp-client.ts";
import { startService } from "../../test/service.ts";
import { storeWith } from "../../test/store.ts";
import { until } from "../../test/until.ts";
import { createKey, createKeyLookup } from "../credential/key.ts";
import { TodoApi } from "../sdk/client.ts";
import { openMemory } from "../storage/memory/store.ts";
import { TODOS_URI } from "./server.ts";
import { MAX_MESSAGE_BYTES, serveOverStdio } from "./stdio.ts";

const UPDATED = "notifications/resources/updated";
const ACKNOWLEDGED = "notifications/subscriptions/acknowledged";

const line = (message: object): string => `${JSON.stringify({ jsonrpc: "2.0", ...message })}\n`;
const PING = line({ id: "ping", method: "ping" });

describe.each(PROTOCOL_VERSIONS)("todo mcp with a client of version %s", (protocolVersion) => {
  test("lists, adds, marks and deletes", async () => {
    await using service = startService();
    await using client = await startStdioClient(protocolVersion, { TODO_URL: service.url });
    const milk = { id: "1", title: "buy milk", done: false };
    expect((await callTool(client, "list_todos")).structured).toEqual({ todos: [] });
    expect(await callTool(client, "add_todo", { title: "buy milk" })).toEqual({
      isError: false,
      structured: { todo: milk },
      text: { todo: milk },
    });
    const more = { todos: [{ title: "eat" }, { title: "sleep" }] };
    expect((await callTool(client, "add_todos", more)).structured).toEqual({
      todos: [
        { id: "2", title: "eat", done: false },
        { id: "3", title: "sleep", done: false },
      ],
    });
    expect((await callTool(client, "set_done", { id: "1", done: true })).structured).toEqual({
      todo: { ...milk, done: true },
    });
    expect((await callTool(client, "delete_todo", { id: "2" })).structured).toEqual({ id: "2" });
    expect((await callTool(client, "list_todos", { filter: "open" })).structured).toEqual({
      todos: [{ id: "3", title: "sleep", done: false }],
    });
    const { result } = await client.request("resources/read", { uri: TODOS_URI });
    expect(JSON.stringify(result)).toContain('\\"title\\":\\"buy milk\\",\\"done\\":true');
    expect([await client.server.end(), client.server.stderr()]).toEqual([0, ""]);
  });

  test("reports a failure as a tool error with the service's code and message", async () => {
    await using service = startService();
    await using client = await startStdioClient(protocolVersion, { TODO_URL: service.url });
    expect(await callTool(client, "delete_todo", { id: "7" })).toEqual({
      isError: true,
      structured: undefined,
      text: { code: "todo_not_found", message: expect.stringContaining("To-do not found") },
    });
  });

  test("reports changes of the resource to a subscriber until it unsubscribes", async () => {
    await using service = startService({ limits: { maxSubscribers: 1, maxSubscribersPerNetwork: 1 } });
    await using client = await startStdioClient(protocolVersion, { TODO_URL: service.url });
    const { server } = client;
    const updates = () => server.messages().filter(({ method }) => method === UPDATED);
    let subscription: number | undefined;
    if (isModern(protocolVersion)) {
      subscription = client.send("subscriptions/listen", {
        notifications: { resourceSubscriptions: [TODOS_URI] },
      });
      const { params } = await server.next("the subscription", ({ method }) => method === ACKNOWLEDGED);
      expect(params?.notifications).toEqual({ resourceSubscriptions: [TODOS_URI] });
    } else {
      expect(await client.request("resources/subscribe", { uri: TODOS_URI })).toMatchObject({ result: {} });
    }
    await service.sendJson("POST", "/api/todos", { title: "from elsewhere" });
    await until(() => updates().length > 0, "an update");
    expect(updates()[0]?.params).toMatchObject({ uri: TODOS_URI });
    if (subscription === undefined) await client.request("resources/unsubscribe", { uri: TODOS_URI });
    else client.send("notifications/cancelled", { requestId: subscription });
    // The only place for a subscriber is free again.
    await until(async () => {
      const response = await fetch(`${service.url}/api/events`);
      await response.body?.cancel();
      return response.ok;
    }, "the event stream has ended");
    const count = updates().length;
    await service.sendJson("POST", "/api/todos", { title: "unseen" });
    await callTool(client, "list_todos");
    expect(updates()).toHaveLength(count);
  });

  test("offers exactly the capabilities that work", async () => {
    await using service = startService();
    await using client = await startStdioClient(protocolVersion, { TODO_URL: service.url });
    expect(client.offer.result).toMatchObject({
      capabilities: { tools: {}, resources: { subscribe: true } },
      ...(!isModern(protocolVersion) && { protocolVersion, serverInfo: { name: "todo-service", version } }),
      ...(isModern(protocolVersion) && { supportedVersions: [protocolVersion] }),
    });
    const codes: Record<string, number | undefined> = {};
    for (const method of ["prompts/list", "logging/setLevel", "completion/complete", "tasks/list", "x"])
      codes[method] = (await client.request(method)).error?.code;
    expect(new Set(Object.values(codes))).toEqual(new Set([-32601]));
    const subscribe = await client.request("resources/subscribe", { uri: TODOS_URI });
    expect(subscribe.error?.code).toBe(isModern(protocolVersion) ? -32601 : undefined);
    const listed = await client.request("resources/list");
    expect(listed.result?.resources).toEqual([expect.objectContaining({ uri: TODOS_URI })]);
  });

  test("rejects an unknown tool and an unknown resource with a protocol error", async () => {
    await using service = startService();
    await using client = await startStdioClient(protocolVersion, { TODO_URL: service.url });
    for (const name of ["drop_table", "constructor", "__proto__", ""]) {
      const { error } = await client.request("tools/call", { name, arguments: {} });
      expect([name, error?.code]).toEqual([name, -32602]);
    }
    for (const uri of ["todo://other", "file:///etc/passwd", "__proto__"]) {
      const { error } = await client.request("resources/read", { uri });
      expect([uri, error?.code]).toEqual([uri, -32602]);
    }
    expect((await client.request("resources/read", {})).error?.code).toBe(-32602);
  });
});

describe("todo mcp", () => {
  test("offers the newest version with a handshake to clients of other versions", async () => {
    await using server = startStdioServer({});
    const params = {
      protocolVersion: "2023-01-01",
      capabilities: {},
      clientInfo: { name: "old", version: "1" },
    };
    server.write(line({ id: 1, method: "initialize", params }));
    const { result } = await server.next("the handshake", ({ id }) => id === 1);
    expect(result?.protocolVersion).toBe("2025-11-25");
  });

  test("sends the token in TODO_TOKEN", async () => {
    const store = openMemory();
    const key = await createKey(store.keys, "assistant", undefined, Date.now(), "read");
    const lookupClient = createKeyLookup(store.keys, Date.now);
    await using service = startService({
      store,
      credentials: { keys: store.keys, lookupClient },
      access: { privateMode: true },
    });
    const variables = { TODO_URL: service.url, TODO_TOKEN: key?.token ?? "" };
    await using client = await startStdioClient("2025-11-25", variables);
    expect((await callTool(client, "list_todos")).structured).toEqual({ todos: [] });
    expect(await callTool(client, "add_todo", { title: "x" })).toMatchObject({
      isError: true,
      text: { code: "insufficient_scope" },
    });
    await using stranger = await startStdioClient("2025-11-25", { TODO_URL: service.url });
    expect(await callTool(stranger, "list_todos")).toMatchObject({
      isError: true,
      text: { code: "unauthorized", message: expect.stringContaining("TODO_TOKEN is not set") },
    });
    const { error } = await stranger.request("resources/subscribe", { uri: TODOS_URI });
    expect(error?.data).toEqual({ code: "unauthorized" });
    await using modern = await startStdioClient("2026-07-28", { TODO_URL: service.url });
    const notifications = { resourceSubscriptions: [TODOS_URI] };
    expect((await modern.request("subscriptions/listen", { notifications })).error?.data).toEqual({
      code: "unauthorized",
    });
  });

  test("starts without the service, and reports that it cannot connect", async () => {
    const url = `http://127.0.0.1:${await freePort()}`;
    await using client = await startStdioClient("2025-11-25", { TODO_URL: url });
    expect(await callTool(client, "list_todos")).toMatchObject({
      isError: true,
      text: { code: "network_error", message: expect.stringContaining(`cannot connect to ${url}`) },
    });
  });

  test("responds to all requests before it exits at the end of the input", async () => {
    await using service = startService();
    await using server = startStdioServer({ TODO_URL: service.url });
    const call = (id: number) =>
      line({ id, method: "tools/call", params: { name: "add_todo", arguments: { title: `${id}` } } });
    const ids = Array.from({ length: 100 }, (_, index) => index);
    server.write(ids.map(call).join("").trimEnd());
    expect([await server.end(), server.stderr()]).toEqual([0, ""]);
    expect(new Set(server.messages().map(({ id }) => id))).toEqual(new Set(ids));
  });

  test("sends at most 64 concurrent requests to the service, and responds to all messages", async () => {
    const store = openMemory();
    const held = Promise.withResolvers<void>();
    let running = 0;
    let most = 0;
    const list: typeof store.list = async (query) => {
      most = Math.max(most, ++running);
      if (running === 64) held.resolve();
      await held.promise;
      running--;
      return store.list(query);
    };
    await using service = startService({ store: storeWith({ list }, store) });
    await using server = startStdioServer({ TODO_URL: service.url });
    const ids = Array.from({ length: 200 }, (_, index) => index);
    for (const id of ids) server.write(line({ id, method: "tools/call", params: { name: "list_todos" } }));
    await until(() => server.messages().length === ids.length, "all responses");
    expect(most).toBe(64);
  });

  test("waits for a slow client with only one listener, and sends all responses", async () => {
    const input = new PassThrough();
    const written: string[] = [];
    const held: (() => void)[] = [];
    let isSlow = true;
    const output = new Writable({
      highWaterMark: 1,
      write: (chunk, _encoding, done) => {
        written.push(String(chunk));
        if (isSlow) held.push(done);
        else done();
      },
    });
    const warnings: string[] = [];
    const served = serveOverStdio({
      todos: new TodoApi({ ids: "string" }),
      describe: ({ message }) => message,
      version,
      input,
      output,
      warn: (message) => warnings.push(message),
    });
    const ids = Array.from({ length: 30 }, (_, index) => index + 10);
    for (const id of ids) input.write(line({ id, method: "ping" }));
    const bytes = ids.length * line({ id: 10, result: {} }).length;
    await until(() => output.writableLength === bytes, "all responses wait");
    expect(output.listenerCount("drain")).toBe(1);
    isSlow = false;
    for (const done of held) done();
    await until(() => written.length === ids.length, "all responses");
    await until(() => output.listenerCount("drain") === 0, "the listener is removed");
    input.end();
    await served;
    expect(new Set(written.map((text) => JSON.parse(text).id))).toEqual(new Set(ids));
    expect(warnings).toEqual([]);
  });

  test("exits when its output is closed", async () => {
    await using service = startService();
    // The shell waits for all three programs.
    const pipeline = 'while echo "$0"; do sleep 0.05; done | bin/todo mcp | head -n 1; echo ended >&2';
    await using closed = startStdioServer({ TODO_URL: service.url }, ["sh", "-c", pipeline, PING.trim()]);
    await until(() => closed.stderr().includes("ended"), "the command has ended");
  });

  test("exits with 2 for a wrong setting", async () => {
    await using command = runTodo(["mcp", "--url", "nonsense"]);
    expect([await command.exited, command.stdout()]).toEqual([2, ""]);
  });

  test.each<[what: string, text: string | Uint8Array, code: number, id: string | null]>([
    ["text that is not JSON", "hello\n", -32700, null],
    ["an incomplete message", '{"jsonrpc":"2.0"\n', -32700, null],
    ["bytes that are not UTF-8", new Uint8Array([0x22, 0xff, 0x22, 0x0a]), -32700, null],
    ["a byte order mark", `\ufeff${PING}`, -32700, null],
    ["a message that is too large", line({ id: 1, method: "x".repeat(MAX_MESSAGE_BYTES) }), -32600, null],
    ["a batch", `[${PING.trim()},${PING.trim()}]\n`, -32600, null],
    ["an empty batch", "[]\n", -32600, null],
    ["a number", "1\n", -32600, null],
    ["null", "null\n", -32600, null],
    ["a message without a version", '{"id":"a","method":"ping"}\n', -32600, "a"],
    ["a request without a method", line({ id: "a" }), -32600, "a"],
    ["a request whose parameters are a list", line({ id: "a", method: "ping", params: [] }), -32600, "a"],
    ["an unknown method", line({ id: "a", method: "x" }), -32601, "a"],
  ])("responds to %s with a protocol error, and continues", async (_what, text, code, id) => {
    await using server = startStdioServer({});
    server.write(text);
    const { error } = await server.next("the error", (message) => message.id === id);
    expect(error?.code).toBe(code);
    server.write(PING);
    expect((await server.next("the response", (message) => message.id === "ping")).result).toEqual({});
    expect([await server.end(), server.messages().length]).toEqual([0, 2]);
  });

  test("ignores blank lines, notifications and responses", async () => {
    await using server = startStdioServer({});
    server.write("\n \r\n");
    server.write(line({ method: "notifications/unknown" }));
    server.write(line({ id: 5, result: {} }));
    server.write(line({ method: "notifications/cancelled", params: { requestId: "never sent" } }));
    server.write(PING);
    await server.next("the response", (message) => message.id === "ping");
    expect([await server.end(), server.messages().length]).toEqual([0, 1]);
  });
});
