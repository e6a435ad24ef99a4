import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { PassThrough } from "node:stream";
import { version } from "../../package.json" with { type: "json" };
import { runTodo } from "../../test/command.ts";
import { mint } from "../../test/credentials.ts";
import { freePort } from "../../test/free-port.ts";
import {
  callTool,
  isModern,
  type StdioClient,
  startStdioClient,
  startStdioServer,
} from "../../test/mcp-client.ts";
import { startPrivate, startService, type TestService } from "../../test/service.ts";
import { until } from "../../test/until.ts";
import { TodoApi } from "../sdk/client.ts";
import { openMemory } from "../storage/memory/store.ts";
import { TODOS_URI } from "./server.ts";
import { serveOverStdio } from "./stdio.ts";

const line = (message: object): string => `${JSON.stringify({ jsonrpc: "2.0", ...message })}\n`;
const PING = line({ id: "ping", method: "ping" });

// The tests of /mcp speak all versions with the same server.
describe.each(["2024-11-05", "2026-07-28"] as const)("todo mcp with protocol %s", (protocolVersion) => {
  let service: TestService;
  let client: StdioClient;
  beforeAll(async () => {
    service = startService();
    client = await startStdioClient(protocolVersion, { TODO_URL: service.url });
  });
  afterAll(async () => {
    await client[Symbol.asyncDispose]();
    await service[Symbol.asyncDispose]();
  });

  test("calls tools and reads the list", async () => {
    const milk = { id: "1", title: "buy milk", done: false };
    expect(await callTool(client, "add_todos", { todos: [{ title: "buy milk" }] })).toEqual({
      isError: false,
      structured: { todos: [milk] },
      text: { todos: [milk] },
    });
    const { result } = await client.request("resources/read", { uri: TODOS_URI });
    expect(JSON.stringify(result)).toContain('\\"title\\":\\"buy milk\\",\\"done\\":false');
  });

  test("says who it is, and lists the list", async () => {
    expect(client.offer.result).toMatchObject({
      capabilities: { tools: {}, resources: {} },
      ...(!isModern(protocolVersion) && { protocolVersion, serverInfo: { name: "todo-service", version } }),
      ...(isModern(protocolVersion) && { supportedVersions: [protocolVersion] }),
    });
    const listed = await client.request("resources/list");
    expect(listed.result?.resources).toEqual([expect.objectContaining({ uri: TODOS_URI })]);
  });

  test("exits with 0 at the end of the input, without a message on standard error", async () => {
    expect([await client.server.end(), client.server.stderr()]).toEqual([0, ""]);
  });
});

test("todo mcp offers the newest version with a handshake to clients of other versions", async () => {
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

test("todo mcp sends the token in TODO_TOKEN", async () => {
  const store = openMemory();
  const key = await mint(store.keys, "assistant", { scope: "read" });
  await using service = startPrivate(store);
  const variables = { TODO_URL: service.url, TODO_TOKEN: key.token };
  await using client = await startStdioClient("2025-11-25", variables);
  expect((await callTool(client, "find_todos")).structured).toEqual({ todos: [], matches: 0 });
  expect(await callTool(client, "add_todos", { todos: [{ title: "x" }] })).toMatchObject({
    isError: true,
    text: { code: "insufficient_scope" },
  });
  await using stranger = await startStdioClient("2025-11-25", { TODO_URL: service.url });
  expect(await callTool(stranger, "find_todos")).toMatchObject({
    isError: true,
    text: { code: "unauthorized", message: expect.stringContaining("TODO_TOKEN is not set") },
  });
});

test("todo mcp starts without the service, and reports that it cannot connect", async () => {
  const url = `http://127.0.0.1:${await freePort()}`;
  await using client = await startStdioClient("2025-11-25", { TODO_URL: url });
  expect(await callTool(client, "find_todos")).toMatchObject({
    isError: true,
    text: { code: "network_error", message: expect.stringContaining(`cannot connect to ${url}`) },
  });
});

test("todo mcp responds to all requests before it exits at the end of the input", async () => {
  await using service = startService();
  await using server = startStdioServer({ TODO_URL: service.url });
  const call = (id: number) => {
    const params = { name: "add_todos", arguments: { todos: [{ title: `${id}` }] } };
    return line({ id, method: "tools/call", params });
  };
  const ids = Array.from({ length: 100 }, (_, index) => index);
  server.write(ids.map(call).join(""));
  expect([await server.end(), server.stderr()]).toEqual([0, ""]);
  expect(new Set(server.messages().map(({ id }) => id))).toEqual(new Set(ids));
});

test("todo mcp aborts requests that take too long at the end of the input, and ends", async () => {
  const called = Promise.withResolvers<void>();
  const fetch = (_url: string, { signal }: RequestInit): Promise<Response> =>
    new Promise((_resolve, reject) => {
      called.resolve();
      signal?.addEventListener("abort", () => reject(signal.reason));
    });
  const [input, output] = [new PassThrough(), new PassThrough()];
  const served = serveOverStdio({
    ...{ todos: new TodoApi({ fetch }), version, input, output, finishMs: 1 },
    describe: ({ message }) => message,
    warn: () => {},
  });
  input.write(line({ id: 1, method: "tools/call", params: { name: "find_todos" } }));
  await called.promise;
  input.end();
  await served;
  expect(output.read()).toBeNull();
});

test("todo mcp exits when its output is closed", async () => {
  await using service = startService();
  // The shell waits for all three programs.
  const pipeline = 'while echo "$0"; do sleep 0.05; done | bin/todo mcp | head -n 1; echo ended >&2';
  await using closed = startStdioServer({ TODO_URL: service.url }, ["sh", "-c", pipeline, PING.trim()]);
  await until(() => closed.stderr().includes("ended"), "the command has ended");
});

test("todo mcp exits with 2 for a wrong setting", async () => {
  await using command = runTodo(["mcp", "--url", "nonsense"]);
  expect([await command.exited, command.stdout()]).toEqual([2, ""]);
});

test("todo mcp ignores what is not a request, and continues", async () => {
  const texts = [
    "hello\n",
    // Bytes that are not UTF-8.
    new Uint8Array([0x22, 0xff, 0x22, 0x0a]),
    // A batch.
    `[${PING.trim()},${PING.trim()}]\n`,
    "1\n",
    '{"id":"a","method":"ping"}\n',
    line({ id: "a" }),
    line({ id: "a", method: "ping", params: [] }),
    "\n \r\n",
    line({ method: "notifications/unknown" }),
    line({ id: 5, result: {} }),
    line({ method: "notifications/cancelled", params: { requestId: "never sent" } }),
  ];
  await using server = startStdioServer({});
  for (const [id, text] of texts.entries()) {
    server.write(text);
    server.write(line({ id, method: "ping" }));
    expect((await server.next(`the response after ${text}`, (message) => message.id === id)).result).toEqual(
      {},
    );
  }
  expect([await server.end(), server.messages().length]).toEqual([0, texts.length]);
});
