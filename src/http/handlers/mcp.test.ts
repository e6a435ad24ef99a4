import { describe, expect, test } from "bun:test";
import { as, mint } from "../../../test/credentials.ts";
import {
  callTool,
  connectHttpClient,
  type HttpClient,
  isModern,
  mcpHeaders,
  mcpSender,
  PROTOCOL_VERSIONS,
} from "../../../test/mcp-client.ts";
import { statusAndCode } from "../../../test/problem.ts";
import { sendRaw, statusOf } from "../../../test/raw-http.ts";
import { AS_ANN, startService, startPrivate as startWith, type TestService } from "../../../test/service.ts";
import { storeWith } from "../../../test/store.ts";
import { createMcpEndpoint } from "../../mcp/http.ts";
import { TODOS_URI } from "../../mcp/server.ts";
import { openMemory } from "../../storage/memory/store.ts";
import { Metrics } from "../observability/metrics.ts";
import { createService, type ServiceOptions } from "../service.ts";

const VERSION = "2025-11-25";

const start = (options: Partial<ServiceOptions> = {}): TestService =>
  startService({ mcp: createMcpEndpoint({ version: "1.2.3" }), ...options });

async function startPrivate(options: Partial<ServiceOptions> = {}) {
  const service = startWith(openMemory(), { mcp: createMcpEndpoint({ version: "1.2.3" }), ...options });
  const { keys } = service.store;
  const { token: reader } = await mint(keys, "reader", { scope: "read" });
  const { token: writer } = await mint(keys, "writer");
  return { ...service, reader, writer };
}

const bearer = (token: string) => as(`Bearer ${token}`).headers;
const at = ({ url }: { readonly url: string }): string => `${url}/mcp`;

/** Sends a request of version 2025-11-25, with these headers. */
const post = (
  service: { readonly url: string },
  headers: Record<string, string> = {},
  method = "tools/list",
  params: object = {},
): Promise<Response> => mcpSender(VERSION, at(service))(method, params, headers);

describe.each(PROTOCOL_VERSIONS)("/mcp with a client of version %s", (protocolVersion) => {
  const connect = (service: TestService): Promise<HttpClient> =>
    connectHttpClient(protocolVersion, at(service));

  test("adds, marks and deletes in JSON without a session, and reports failures as tool errors", async () => {
    await using service = start();
    await using client = await connect(service);
    await callTool(client, "add_todos", { todos: [{ title: "eat" }, { title: "sleep" }] });
    const todos = [{ id: "2", title: "sleep", done: true }];
    expect((await callTool(client, "set_done", { ids: ["2"], done: true })).structured).toMatchObject({
      todos,
    });
    expect((await callTool(client, "delete_todos", { ids: ["1"] })).isError).toBe(false);
    expect(await callTool(client, "delete_todos", { ids: ["1"] })).toEqual({
      isError: true,
      structured: undefined,
      text: { code: "todo_not_found", message: "To-do not found", completed: [] },
    });
    const { result } = await client.request("resources/read", { uri: TODOS_URI });
    const text = JSON.stringify({ todos, matches: 1 });
    expect(result?.contents).toEqual([{ uri: TODOS_URI, mimeType: "application/json", text }]);
    const { headers } = await client.post("tools/list");
    expect([...headers.keys()]).not.toContain("mcp-session-id");
    expect(Object.fromEntries(headers)).toMatchObject({
      "content-type": "application/json",
      "x-content-type-options": "nosniff",
      "cross-origin-resource-policy": "same-origin",
    });
  });

  test("offers no subscriptions, and rejects methods and tools that it does not offer", async () => {
    await using service = start();
    await using client = await connect(service);
    expect(client.offer.result?.capabilities).toEqual({ tools: {}, resources: {} });
    const status = isModern(protocolVersion) ? 404 : 200;
    for (const method of [
      "resources/subscribe",
      "prompts/list",
      "logging/setLevel",
      "completion/complete",
      "x",
    ]) {
      const response = await client.post(method, { uri: TODOS_URI });
      const { error } = JSON.parse(await response.text());
      expect([method, response.status, error.code]).toEqual([method, status, -32601]);
    }
    const unknown = [
      ...["drop_table", "constructor", "__proto__", ""].map((name) => [
        "tools/call",
        { name, arguments: {} },
      ]),
      ...["todo://other", "file:///etc/passwd", "__proto__"].map((uri) => ["resources/read", { uri }]),
      ["resources/read", {}],
    ] as [method: string, params: object][];
    for (const [method, params] of unknown)
      expect([params, (await client.request(method, params)).error?.code]).toEqual([params, -32602]);
  });
});

test("/mcp accepts a subscription of a client of version 2026-07-28, and ends it immediately", async () => {
  await using service = start();
  const notifications = { resourceSubscriptions: [TODOS_URI], toolsListChanged: true };
  const response = await mcpSender("2026-07-28", at(service))("subscriptions/listen", { notifications });
  const events = (await response.text()).split("\n").filter((line) => line.startsWith("data: "));
  expect(events.map((line) => JSON.parse(line.slice(6)))).toMatchObject([
    { method: "notifications/subscriptions/acknowledged", params: { notifications: {} } },
    { id: 1, result: { resultType: "complete" } },
  ]);
});

test("without the option, /mcp is an unknown path", async () => {
  await using service = startService();
  for (const method of ["GET", "POST", "DELETE", "OPTIONS", "PUT"])
    expect([method, await service.outcome(`${method} /mcp`)]).toEqual([method, "404 route_not_found"]);
});

test("in private mode, /mcp accepts only requests with valid credentials", async () => {
  await using service = await startPrivate();
  for (const headers of [{}, bearer("wrong")])
    expect(await statusAndCode(await post(service, headers))).toEqual([401, "unauthorized"]);
  const accepted = await post(service, bearer(service.reader));
  expect([accepted.status, accepted.headers.get("cache-control")]).toEqual([200, "no-store"]);
});

test("in private mode, /mcp names Bearer before Basic, and looks like a service without OAuth", async () => {
  await using service = await startPrivate();
  const challenges = [at(service), `${service.url}/api/todos`].map(async (url) =>
    (await fetch(url, { method: "POST" })).headers.get("www-authenticate"),
  );
  expect(await Promise.all(challenges)).toEqual([
    expect.stringMatching(/^Bearer .*, Basic /),
    expect.stringMatching(/^Basic .*, Bearer /),
  ]);
  const wellKnown = `${service.url}/.well-known/oauth-protected-resource/mcp`;
  expect(await statusAndCode(await fetch(wellKnown))).toEqual([404, "route_not_found"]);
  expect(await statusAndCode(await fetch(`${service.url}/api/nowhere`))).toEqual([401, "unauthorized"]);
});

test("in private mode, /mcp allows a key with the scope read to list, but not to write", async () => {
  await using service = await startPrivate();
  await using reader = await connectHttpClient(VERSION, at(service), bearer(service.reader));
  await using writer = await connectHttpClient(VERSION, at(service), bearer(service.writer));
  expect((await callTool(writer, "add_todos", { todos: [{ title: "a" }] })).isError).toBe(false);
  expect((await callTool(reader, "find_todos")).structured).toMatchObject({ todos: [{ title: "a" }] });
  expect(await callTool(reader, "delete_todos", { ids: ["1"] })).toMatchObject({
    isError: true,
    text: { code: "insufficient_scope" },
  });
  expect((await callTool(writer, "find_todos")).structured).toMatchObject({ matches: 1 });
});

test("in private mode, /mcp accepts a user's password, but rejects writes with it from pages of other origins", async () => {
  const origin = "http://127.0.0.1:1";
  await using service = await startPrivate({ network: { onLoopback: true } });
  const add = { name: "add_todos", arguments: { todos: [{ title: "a" }] } };
  const fromPage = { Authorization: AS_ANN, Origin: origin, "Sec-Fetch-Site": "same-site" };
  const rejected = await (await post(service, fromPage, "tools/call", add)).json();
  expect(JSON.stringify(rejected)).toContain("cross_site_write");
  const accepted = await (await post(service, { Authorization: AS_ANN }, "tools/call", add)).json();
  expect(JSON.stringify(accepted)).not.toContain("isError");
});

test("in private mode, /mcp logs each write of a tool with the API key, and does not log a request to /mcp as a write", async () => {
  await using service = await startPrivate();
  await using client = await connectHttpClient(VERSION, at(service), bearer(service.writer));
  await callTool(client, "add_todos", { todos: [{ title: "canary-title" }] });
  await callTool(client, "find_todos");
  const writes = service.lines.filter(({ message }) => message === "write");
  expect(writes.map(({ fields }) => fields)).toMatchObject([
    { method: "POST", todo: "1", client: "writer", key: expect.any(String) },
  ]);
  for (const secret of ["canary-title", service.writer]) expect(service.logText()).not.toContain(secret);
});

test("in private mode, /mcp finishes a tool call whose client has disconnected", async () => {
  const store = openMemory();
  let hasLeft = false;
  const insert: typeof store.insert = (title) => {
    hasLeft = true;
    return store.insert(title);
  };
  const { routes } = createService({
    store: storeWith({ insert }, store),
    mcp: createMcpEndpoint({ version: "1" }),
    access: { privateMode: true },
    credentials: { lookupClient: () => ({ name: "ci", scope: "write" }) },
  });
  const params = { name: "add_todos", arguments: { todos: [{ title: "a" }, { title: "b" }] } };
  const request = new Request("http://localhost/mcp", {
    method: "POST",
    headers: { ...mcpHeaders(VERSION, "tools/call", params), ...bearer("t0ken") },
    body: JSON.stringify({ jsonrpc: "2.0", id: 1, method: "tools/call", params }),
  });
  // The runtime forgets the address when the connection is closed.
  const requestIP = () => (hasLeft ? null : { address: "127.0.0.1" });
  const server = { protocol: "http", requestIP, timeout: () => {} } as const;
  const response = await routes["/mcp"]?.(Object.assign(request, { params: {} }), server);
  expect(await response?.json()).toMatchObject({
    result: { structuredContent: { todos: [{ title: "a" }, { title: "b" }] } },
  });
});

test("the metrics and the access log count /mcp and the requests of its tools", async () => {
  const metrics = new Metrics({ version: "1", runtime: "test" });
  await using service = start({ observer: metrics.observe(openMemory()), accessLog: true });
  await using client = await connectHttpClient(VERSION, at(service));
  await callTool(client, "add_todos", { todos: [{ title: "a" }] });
  expect(service.lines.map(({ fields }) => fields.path)).toEqual(["/mcp", "/api/todos", "/mcp"]);
  const counted = [...(await metrics.text()).matchAll(/^todo_http_requests_total\{route="([^"]+)"/gm)];
  expect(counted.map(([, route]) => route).sort()).toEqual(["/api/todos", "/mcp"]);
});

test.each<[what: string, protocol: string, host: readonly string[]]>([
  ["no Host", "HTTP/1.0", []],
  ["a Host with a port that does not exist", "HTTP/1.1", ["Host: localhost:99999"]],
])("/mcp accepts a request with %s", async (_what, protocol, host) => {
  await using service = start({ network: { onLoopback: true } });
  await service.sendJson("POST", "/api/todos", { title: "a" });
  const params = { name: "find_todos" };
  const body = JSON.stringify({ jsonrpc: "2.0", id: 1, method: "tools/call", params });
  const sent = Object.entries(mcpHeaders(VERSION, "tools/call", params)).map((one) => one.join(": "));
  const length = [`Content-Length: ${body.length}`, "Connection: close"];
  const head = [`POST /mcp ${protocol}`, ...host, ...sent, ...length];
  const { text } = await sendRaw(service.port, [...head, "", body].join("\r\n"));
  expect(statusOf(text)).toBe(200);
  expect(text).toContain('"title":"a"');
});

test("/mcp allows only POST, and only JSON", async () => {
  await using service = start();
  const response = await post(service, { "Content-Type": "text/plain" });
  expect(await statusAndCode(response)).toEqual([415, "unsupported_media_type"]);
  for (const method of ["GET", "DELETE", "PUT", "PATCH"]) {
    const response = await fetch(at(service), { method });
    expect([response.status, response.headers.get("allow")]).toEqual([405, "POST, OPTIONS"]);
  }
});

test.each<[what: string, body: string | Uint8Array, status: number, code: number | string]>([
  ["text that is not JSON", "hello", 400, -32700],
  ["an empty body", "", 400, -32700],
  ["bytes that are not UTF-8", new Uint8Array([0x22, 0xff, 0x22]), 400, -32700],
  ["a batch", '[{"jsonrpc":"2.0","id":1,"method":"ping"}]', 400, -32600],
  ["a body above 64 KiB", JSON.stringify("x".repeat(65_536)), 413, "body_too_large"],
])("/mcp rejects %s", async (_what, body, status, code) => {
  await using service = start();
  for (const version of PROTOCOL_VERSIONS) {
    const init = { method: "POST", headers: mcpHeaders(version, "ping"), body };
    const response = await fetch(at(service), init);
    const answer = JSON.parse(await response.text());
    expect([response.status, answer.error?.code ?? answer.code]).toEqual([status, code]);
  }
});

test.each<[what: string, params: object]>([
  ["_meta", { _meta: Object.fromEntries(Array.from({ length: 500 }, (_, n) => [`k${n}`, 1])) }],
  ["nested objects", { _meta: { a: JSON.parse(`${'{"a":'.repeat(500)}1${"}".repeat(500)}`) } }],
  ["arguments", { name: "add_todos", arguments: { todos: Array.from({ length: 500 }, () => 1) } }],
])("/mcp rejects a message with too many values in %s", async (_what, params) => {
  await using service = start();
  const response = await post(service, {}, "tools/call", params);
  expect(response.status).toBe(400);
  expect(await response.json()).toMatchObject({ error: { code: -32600 }, id: null });
});

test.each<[accept: string, status: number]>([
  ["application/json", 200],
  ["*/*", 200],
  ["application/*;q=0.5, text/html", 200],
  ["text/event-stream", 406],
  ["text/html", 406],
])("/mcp responds to Accept: %s with the status %p", async (Accept, status) => {
  await using service = start();
  for (const version of PROTOCOL_VERSIONS.filter((one) => !isModern(one))) {
    const response = await mcpSender(version, at(service))("tools/list", {}, { Accept });
    expect([version, response.status]).toEqual([version, status]);
  }
});

test("/mcp reports failures of the store with the service's code", async () => {
  const broken = storeWith({
    list: () => {
      throw new Error("secret details");
    },
  });
  await using service = start({ store: broken });
  await using client = await connectHttpClient("2026-07-28", at(service));
  expect(await callTool(client, "find_todos")).toMatchObject({
    isError: true,
    text: { code: "internal_error", message: "Internal server error" },
  });
  const { error } = await client.request("resources/read", { uri: TODOS_URI });
  expect(error).toMatchObject({ code: -32603, data: { code: "internal_error" } });
  expect(service.lines[0]?.fields.err).toHaveProperty("message", "secret details");
});

test("/mcp lets other work run between the requests of one tool call", async () => {
  const store = openMemory();
  let turns = 0;
  const turnsAtInsert: number[] = [];
  const insert: typeof store.insert = (title) => {
    turnsAtInsert.push(turns);
    setImmediate(() => {
      turns++;
    });
    return store.insert(title);
  };
  await using service = start({ store: storeWith({ insert }, store) });
  await using client = await connectHttpClient(VERSION, at(service));
  await callTool(client, "add_todos", { todos: [{ title: "a" }, { title: "b" }, { title: "c" }] });
  expect(turnsAtInsert).toEqual([0, 1, 2]);
});

test("/mcp does not pass If-None-Match and Idempotency-Key of its request to its tools", async () => {
  await using service = start();
  await service.sendJson("POST", "/api/todos", { title: "a" });
  const headers = { "If-None-Match": "*", "Idempotency-Key": "k" };
  for (const title of ["b", "c"]) {
    const call = { name: "add_todos", arguments: { todos: [{ title }] } };
    await post(service, headers, "tools/call", call);
  }
  const listed = await (await post(service, headers, "tools/call", { name: "find_todos" })).text();
  for (const title of ["a", "b", "c"]) expect(listed).toContain(`"title":"${title}"`);
});
