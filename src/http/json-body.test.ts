import { expect, test } from "bun:test";
import type { ClientHttp2Session } from "node:http2";
import type { Socket } from "node:net";
import { answerOf, ask, POST_TODO } from "../../test/http2.ts";
import { capturingLog } from "../../test/log.ts";
import { countRequests } from "../../test/observer.ts";
import { statusAndCode } from "../../test/problem.ts";
import { chunked, openSocket, request, sendRaw, statusOf } from "../../test/raw-http.ts";
import { startService, startTls, type TestService } from "../../test/service.ts";
import { until } from "../../test/until.ts";
import { createMcpEndpoint } from "../mcp/http.ts";
import { openMemory } from "../storage/memory/store.ts";
import { MAX_BODY_BYTES, MAX_REQUEST_BYTES } from "./limits.ts";
import type { ServiceOptions } from "./service.ts";
import { MAX_UNFINISHED_BYTES } from "./unfinished-bodies.ts";

const JSON_TYPE = "Content-Type: application/json";
const X = '{"title":"x"}';

type Body = string | Uint8Array<ArrayBuffer>;

const post = ({ send }: TestService, body: Body): Promise<Response> =>
  send("POST", "/api/todos", { headers: { "Content-Type": "application/json" }, body });

/** Returns JSON of exactly this many bytes, with the title "x". */
const bodyOf = (bytes: number): string => `{"title":"x","y":"${"y".repeat(bytes - 20)}"}`;

test.each<[isAccepted: boolean, types: readonly string[]]>([
  [true, ["Application/Json", 'application/json ; charset="utf-8"', "application/json; charset=UTF8"]],
  [true, ["application/json;", "application/vnd.todo.v1+json"]],
  [false, ["text/plain", "text/json", "application/ json", "application/a+json+xml"]],
  [false, ["application/json, application/json", "application/json; charset=utf-16"]],
  [false, ['application/json; charset=""']],
])("a body's Content-Type may be UTF-8 JSON in any spelling, accepted: %p, %j", async (isAccepted, types) => {
  await using service = startService();
  await service.sendJson("POST", "/api/todos", { title: "x" });
  for (const type of types) {
    const headers = { "Content-Type": type };
    const created = await service.send("POST", "/api/todos", { headers, body: X });
    const updated = await service.send("PATCH", "/api/todos/1", { headers, body: '{"done":true}' });
    const statuses = isAccepted ? [201, 200] : [415, 415];
    expect([type, created.status, updated.status]).toEqual([type, ...statuses]);
    const accepts = [created.headers.get("accept-post"), updated.headers.get("accept-patch")];
    expect(accepts).toEqual(Array(2).fill(isAccepted ? null : "application/json"));
  }
});

test.each([
  ["missing", []],
  ["empty", ["Content-Type:"]],
  ["sent twice", [JSON_TYPE, JSON_TYPE]],
])("the Content-Type of a body is rejected: %s", async (_what, headers) => {
  await using service = startService();
  const bytes = request("POST /api/todos", [...headers, `Content-Length: ${X.length}`], X);
  expect(statusOf((await sendRaw(service.port, bytes)).text)).toBe(415);
});

test.each(["gzip", "identity"])("a Content-Encoding of %s is rejected", async (coding) => {
  await using service = startService();
  const headers = { "Content-Type": "application/json", "Content-Encoding": coding };
  const response = await service.send("POST", "/api/todos", { headers, body: X });
  expect(await statusAndCode(response)).toEqual([415, "unsupported_media_type"]);
  expect(response.headers.get("accept-encoding")).toBe("identity");
});

const [NO_JSON, INVALID] = ["400 invalid_json", "422 validation_failed"];
const bytes = (...values: number[]): Uint8Array<ArrayBuffer> =>
  Buffer.concat([Buffer.from('{"title":"'), Buffer.from(values), Buffer.from('"}')]);

test.each<[what: string, body: Body, outcome: string | { title: string }]>([
  ["with surrounding whitespace", ' \t\r\n{"title" :\n"x"}\r\n ', { title: "x" }],
  ["with escapes", '{"\\u0074itle":"\\u0078\\ud83d\\ude00"}', { title: "x😀" }],
  ["with a duplicate name, whose last value is used", '{"title":1,"title":"x"}', { title: "x" }],
  ["with __proto__", '{"__proto__":{"title":"y"},"title":"x","constructor":1}', { title: "x" }],
  ["with numbers beyond a double", '{"n":1e400,"m":18446744073709551615,"title":"x"}', { title: "x" }],
  [
    "with 2 to 4 bytes of UTF-8",
    bytes(0xc3, 0xa9, 0xe2, 0x82, 0xac, 0xf0, 0x9f, 0x98, 0x80),
    { title: "é€😀" },
  ],
  ["with a BOM inside a string", '{"title":"\ufeffx"}', { title: "\ufeffx" }],
  ["that is empty", "", NO_JSON],
  ["with a trailing comma", '{"title":"x",}', NO_JSON],
  ["with a comment", '{"title":"x"}//', NO_JSON],
  ["of two values", '{"title":"x"}{"title":"y"}', NO_JSON],
  ["with a raw line feed in a string", '{"title":"a\nb"}', NO_JSON],
  ["in form encoding", "title=x", NO_JSON],
  ["with a BOM", '\ufeff{"title":"x"}', NO_JSON],
  ["in UTF-16", Buffer.from('{"title":"x"}', "utf16le"), NO_JSON],
  ["that ends inside a character", Buffer.from([...Buffer.from('"'), 0xf0, 0x9f, 0x98]), NO_JSON],
  ["in Latin-1", bytes(0xe9), NO_JSON],
  ["with an overlong NUL", bytes(0xc0, 0x80), NO_JSON],
  ["with a surrogate in UTF-8", bytes(0xed, 0xa0, 0x80), NO_JSON],
  ["of arrays 30,000 deep, unclosed", "[".repeat(30_000), NO_JSON],
  ["of null", "null", INVALID],
  ["of an array", '[{"title":"x"}]', INVALID],
  ["of an object with __proto__ only", '{"__proto__":{"title":"x"}}', INVALID],
  ["with a lone surrogate in its title", '{"title":"\\ud83d"}', INVALID],
  ["with a duplicate name, whose last value is invalid", '{"title":"x","title":1}', INVALID],
])("a body %s is accepted or rejected", async (_what, body, outcome) => {
  await using service = startService();
  const response = await post(service, body);
  if (typeof outcome === "string") expect((await statusAndCode(response)).join(" ")).toBe(outcome);
  else expect([response.status, await response.json()]).toEqual([201, { id: 1, ...outcome, done: false }]);
});

test.each([
  ["arrays", "[", "]", 30_000],
  ["objects", '{"a":', "}", 10_000],
])("a body with deep %s causes no server error", async (_what, opening, closing, depth) => {
  await using service = startService();
  const deep = `{"title":"x","y":${opening.repeat(depth)}1${closing.repeat(depth)}}`;
  const response = await post(service, deep);
  // RFC 8259 §9 leaves the depth to the parser: accepted or rejected, but never a server error.
  expect(response.status === 201 || response.status === 400).toBe(true);
});

test.each([
  ["on GET", "GET", "/api/todos", 200],
  ["on DELETE", "DELETE", "/api/todos/1", 204],
  ["on OPTIONS", "OPTIONS", "/api/todos", 204],
  ["on an unknown path", "POST", "/nowhere", 404],
])("a body %s is ignored", async (_what, method, path, status) => {
  await using service = startService();
  await service.sendJson("POST", "/api/todos", { title: "x" });
  const bytes = request(`${method} ${path}`, ["Content-Length: 1"], "{");
  expect(statusOf((await sendRaw(service.port, bytes)).text)).toBe(status);
});

const LENGTH = (body: string) => `Content-Length: ${body.length}`;
const CHUNKED = "Transfer-Encoding: chunked";
const atLimit = bodyOf(MAX_BODY_BYTES);
const overLimit = bodyOf(MAX_BODY_BYTES + 1);

test.each([
  ["64 KiB", [LENGTH(atLimit)], atLimit, 201],
  ["64 KiB in chunks", [CHUNKED], chunked(atLimit, 1000), 201],
  ["a chunk with an extension", [CHUNKED], `d;a="b"\r\n${X}\r\n0\r\n\r\n`, 201],
  ["chunks with a trailer", [CHUNKED], `d\r\n${X}\r\n0\r\nX-Y: z\r\n\r\n`, 201],
  ["no bytes in chunks", [CHUNKED], "0\r\n\r\n", 400],
  ["0", ["Content-Length: 0"], "", 400],
  ["no Content-Length", [], "", 400],
  ["65,537 bytes", [LENGTH(overLimit)], overLimit, 413],
  ["65,537 bytes in chunks", [CHUNKED], chunked(overLimit, 1000), 413],
  ["65,537 bytes declared, none sent", [LENGTH(overLimit)], "", 413],
  ["more than the listener reads", ["Content-Length: 2000000"], "", 413],
  ["a length that is not a number", ["Content-Length: x"], X, 400],
  ["a length above 64 bits", ["Content-Length: 18446744073709551629"], X, 400],
  ["two different lengths", ["Content-Length: 13", "Content-Length: 14"], X, 400],
  ["both a length and chunks", ["Content-Length: 13", CHUNKED], chunked(X, 5), 400],
  ["an unknown transfer coding", ["Transfer-Encoding: identity"], X, 400],
  ["a chunk size above 64 bits", [CHUNKED], `ffffffffffffffffffffd\r\n${X}\r\n0\r\n\r\n`, 400],
])("the length of a body is valid and at most 64 KiB: %s", async (_what, headers, body, status) => {
  await using service = startService();
  const { text } = await sendRaw(service.port, request("POST /api/todos", [JSON_TYPE, ...headers], body));
  expect(statusOf(text)).toBe(status);
  expect(await service.outcome("GET /api/todos/1")).toStartWith(status === 201 ? "200" : "404");
});

test("the length of a body above the limit is not parsed as further requests", async () => {
  await using service = startService();
  const smuggled = "GET /api/openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(1400);
  const head = `POST /api/todos HTTP/1.1\r\nHost: localhost\r\n${JSON_TYPE}\r\n`;
  for (const body of [
    `${LENGTH(smuggled)}\r\n\r\n${smuggled}`,
    `${CHUNKED}\r\n\r\n${chunked(smuggled, 9000)}`,
  ]) {
    const { text } = await sendRaw(service.port, head + body, 1000);
    expect(text.match(/^HTTP\/1\.1 \d{3}/gm)).toEqual(["HTTP/1.1 413"]);
  }
});

const cuts: [what: string, headers: string[], sent: string][] = [
  ["before the Content-Length is reached", ["Content-Length: 13"], '{"title":'],
  ["after complete JSON, but before the Content-Length", ["Content-Length: 20"], X],
  ["within a chunk", ["Transfer-Encoding: chunked"], 'd\r\n{"title":'],
  ["before the last chunk", ["Transfer-Encoding: chunked"], `d\r\n${X}\r\n`],
];
const endings: [how: string, end: (socket: Socket) => void][] = [
  ["closed", (socket) => socket.end()],
  ["reset", (socket) => socket.resetAndDestroy()],
];
const cases = cuts.flatMap((cut) => endings.map(([how, end]) => ({ cut, how, end, what: cut[0] })));

test.each(cases)("incomplete bodies change nothing: $how $what", async ({ cut: [, headers, sent], end }) => {
  const requests = countRequests();
  await using service = startService({ observer: requests.observer });
  for (const line of ["POST /api/todos", "PATCH /api/todos/1"]) {
    const socket = await openSocket(service.port, request(line, [JSON_TYPE, ...headers], sent));
    await until(() => requests.waiting() === 1, "the request has arrived");
    end(socket);
    await until(() => requests.waiting() === 0, "the request has failed");
    socket.destroy();
  }
  expect(await (await service.send("GET", "/api/todos")).json()).toEqual([]);
  expect(service.lines).toEqual([]);
});

const NEVER_MS = 3_600_000;
const X_FROM = (address: string) => ({ ...POST_TODO, "x-forwarded-for": address });

function serveTls(options: Partial<ServiceOptions>) {
  const server = startTls({ network: { trustedProxies: ["127.0.0.1"] }, ...options });
  return { ...server, session: server.session() };
}

function begin(session: ClientHttp2Session, headers: Record<string, string> = POST_TODO) {
  const stream = session.request(headers);
  const answer = answerOf(stream);
  stream.write("{");
  return { answer, finish: () => stream.end('"title":"x"}') };
}

const codeOf = ({ text }: { readonly text: string }): unknown => JSON.parse(text).code;

test.each([
  ["POST /api/todos", ["Content-Length: 99"], "{"],
  ["POST /api/todos", ["Transfer-Encoding: chunked"], "1\r\n{\r\n"],
  ["PATCH /api/todos/1", ["Content-Length: 99"], "{"],
  ["PATCH /api/todos/99", ["Content-Length: 99"], "{"],
  ["POST /admin/keys", ["Content-Length: 99"], "{"],
  ["POST /mcp", ["Content-Length: 99"], "{"],
])("an unfinished body of %s with %s gets a 408, and its connection closes", async (line, headers, sent) => {
  const store = openMemory();
  store.insert("x");
  const credentials = { keys: store.keys, checkUser: () => true };
  const mcp = createMcpEndpoint({ version: "1.0.0" });
  await using service = startService({ store, credentials, mcp, limits: { bodyTimeoutMs: 20 } });
  const basic = `Authorization: Basic ${btoa("admin:s3cret")}`;
  const bytes = request(line, [JSON_TYPE, basic, ...headers], sent).replace("Connection: close\r\n", "");
  const { text, closed } = await sendRaw(service.port, bytes);
  expect([statusOf(text), closed]).toEqual([408, true]);
  expect(text).toContain('"code":"request_timeout"');
  expect(text).toMatch(/^connection: close\r$/im);
  expect(text).not.toMatch(/^keep-alive:/im);
});

test("an unfinished body gets a 408 over HTTP/2, and the connection stays usable", async () => {
  await using server = serveTls({ limits: { bodyTimeoutMs: 20 } });
  const answer = await begin(server.session).answer;
  expect([answer.status, codeOf(answer), answer.isWhole]).toEqual([408, "request_timeout", true]);
  expect((await ask(server.session, { ":path": "/livez" })).status).toBe(200);
});

test("an unfinished body is accepted if the rest arrives within the time limit", async () => {
  await using server = serveTls({ limits: { bodyTimeoutMs: NEVER_MS, maxRequests: 2 } });
  const { answer, finish } = begin(server.session);
  // The server has waited for the rest when this is answered.
  expect((await ask(server.session, { ":path": "/livez" })).status).toBe(200);
  finish();
  expect((await answer).status).toBe(201);
});

test("an unfinished body is rejected, the oldest first, when a half of the concurrent requests are unfinished", async () => {
  const { log, lines } = capturingLog();
  await using server = serveTls({ limits: { bodyTimeoutMs: NEVER_MS, maxRequests: 4 }, log });
  const [first, second, third] = [begin(server.session), begin(server.session), begin(server.session)];
  const rejected = await first.answer;
  expect([rejected.status, codeOf(rejected)]).toEqual([503, "overloaded"]);
  for (const { answer, finish } of [second, third]) {
    finish();
    expect((await answer).status).toBe(201);
  }
  server.close();
  const [fields, message] = [{ network: "127.0.0.1" }, "too many unfinished bodies"];
  expect(lines).toEqual([{ level: "warn", message, fields }]);
});

test("an unfinished body is rejected only in the network that has most of them", async () => {
  await using server = serveTls({ limits: { bodyTimeoutMs: NEVER_MS, maxRequests: 6 } });
  const other = begin(server.session, X_FROM("203.0.113.6"));
  const addresses = ["2001:db8::1", "2001:db8::2", "2001:db8::3", "2001:db8::4"];
  const flood = addresses.map((address) => begin(server.session, X_FROM(address)));
  const [first, second, ...rest] = flood;
  for (const oldest of [first, second]) expect((await oldest?.answer)?.status).toBe(503);
  for (const { answer, finish } of [other, ...rest]) {
    finish();
    expect((await answer).status).toBe(201);
  }
});

test("an unfinished body is rejected until the others fit into the memory, whatever their sizes", async () => {
  await using server = serveTls({ limits: { bodyTimeoutMs: NEVER_MS } });
  const small = Array.from({ length: 50 }, () =>
    begin(server.session, { ...POST_TODO, "content-length": "13" }),
  );
  const fitting = Math.floor(MAX_UNFINISHED_BYTES / (MAX_REQUEST_BYTES + 4096));
  const large = Array.from({ length: fitting }, () => begin(server.session));
  // The large ones leave room for three small ones.
  const oldest = await Promise.all(small.slice(0, 47).map(({ answer }) => answer));
  for (const { status } of oldest) expect(status).toBe(503);
  const others = [...small.slice(47), ...large];
  for (const { finish } of others) finish();
  for (const { answer } of others) expect((await answer).status).toBe(201);
});

test.each([
  ["POST /api/todos", undefined, 401],
  ["POST /api/todos", "reader", 403],
  ["PATCH /api/todos/1", "reader", 403],
  ["POST /mcp", undefined, 401],
  ["POST /admin/keys", undefined, 401],
])("an unfinished body of %s by %p is not awaited without permission", async (line, token, status) => {
  await using service = startService({
    limits: { bodyTimeoutMs: NEVER_MS },
    access: { privateMode: true },
    credentials: {
      lookupClient: (given) => (given === "reader" ? { name: "reader", scope: "read" } : undefined),
      keys: openMemory().keys,
    },
    mcp: () => Promise.reject(new Error("/mcp must not be reached")),
  });
  const authorization = token === undefined ? [] : [`Authorization: Bearer ${token}`];
  const { text } = await sendRaw(
    service.port,
    request(line, [JSON_TYPE, ...authorization, "Content-Length: 99"], "{"),
  );
  expect(statusOf(text)).toBe(status);
});
