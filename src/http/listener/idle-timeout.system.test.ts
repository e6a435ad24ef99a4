import { describe, expect, setDefaultTimeout, test } from "bun:test";
import type { Socket } from "node:net";
import { connect as connectTls } from "node:tls";
import { openSocket, readToEnd, request, startReading, unchunked } from "../../../test/raw-http.ts";
import { startService, startTls } from "../../../test/service.ts";
import { follow } from "../../../test/sse.ts";
import { storeOf } from "../../../test/store.ts";
import { openMemory } from "../../storage/memory/store.ts";

setDefaultTimeout(60_000);

const KEPT_ALIVE = "GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n";

describe("a stalled connection is closed, but not before 8 seconds:", () => {
  const JSON_TYPE = "Content-Type: application/json";
  const cases: [what: string, first: string, dripped: string][] = [
    ["a connection that sends nothing", "", ""],
    ["half of a request head", "GET /livez HTTP/1.1\r\nHost: local", ""],
    ["a request head that arrives one byte per second", "GET /livez HTTP/1.1\r\nHost: localhost\r\nX: ", "x"],
    ["an idle kept-alive connection", KEPT_ALIVE, ""],
    ["a body that never arrives", request("POST /api/todos", [JSON_TYPE, "Content-Length: 99"]), ""],
    [
      "a body that arrives one byte per second",
      request("POST /api/todos", [JSON_TYPE, "Content-Length: 99"]),
      " ",
    ],
    [
      "a body that arrives one chunk per second",
      request("POST /api/todos", [JSON_TYPE, "Transfer-Encoding: chunked"]),
      "1\r\n \r\n",
    ],
    [
      "a chunk that arrives one byte per second",
      request("POST /api/todos", [JSON_TYPE, "Transfer-Encoding: chunked"], "ff\r\n"),
      " ",
    ],
    [
      "a body of a GET that arrives one byte per second",
      "GET /livez HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99\r\n\r\n",
      " ",
    ],
  ];

  test.concurrent.each(cases)("%s", async (_what, first, dripped) => {
    await using service = startService();
    const open = () => openSocket(service.port);
    expect(await closedAfter(open, first, dripped)).toBeGreaterThan(8000);
  });

  test.concurrent.each<[what: string, ALPNProtocols: string[], first: string, dripped: string]>([
    ["a connection without a handshake", [], "", ""],
    ["a connection that sends nothing", ["http/1.1"], "", ""],
    [
      "a request head that arrives one byte per second",
      ["http/1.1"],
      "GET /livez HTTP/1.1\r\nHost: localhost\r\nX: ",
      "x",
    ],
    ["an idle kept-alive connection", ["http/1.1"], KEPT_ALIVE, ""],
    [
      "an HTTP/2 connection without a request",
      ["h2"],
      "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0",
      "",
    ],
  ])("%s, over TLS", async (_what, ALPNProtocols, first, dripped) => {
    await using served = startTls();
    const { port, certificate } = served;
    const tls = { port, host: "127.0.0.1", servername: "localhost", ca: certificate.cert, ALPNProtocols };
    const open = async () => (ALPNProtocols.length === 0 ? openSocket(port) : connectTls(tls));
    expect(await closedAfter(open, first, dripped)).toBeGreaterThan(8000);
  });

  test.concurrent("an event stream without data stays open", async () => {
    const store = openMemory();
    await using service = startService({ store, limits: { heartbeatMs: 3_600_000 } });
    await using events = await follow(service.url);
    expect((await events.take(1)).map(({ type }) => type)).toEqual(["position"]);
    // This connection opens after the event stream, so an idle event stream would be closed first.
    await closedAfter(() => openSocket(service.port), KEPT_ALIVE, "");
    expect(events.comments()).toBe(0);
    store.insert("x");
    expect((await events.take(1)).map(({ type }) => type)).toEqual(["created"]);
  });
});

/** Longer than any connection may be idle. */
const SLOW_MS = 15_000;
const slowly = async <T>(value: T): Promise<T> => {
  await Bun.sleep(SLOW_MS);
  return value;
};
const memory = openMemory();
const slow = {
  store: { ...memory, get: () => slowly(undefined), delete: async () => slowly(await memory.delete(1n)) },
  credentials: { checkUser: () => slowly(true) },
};

test.concurrent.each([
  ["GET", "/api/todos/1", 404],
  ["HEAD", "/api/todos/1", 404],
  ["DELETE", "/api/todos/1", 404],
  ["GET", "/admin/", 200],
] as const)(
  "a request that takes longer than the idle timeout gets its response: %s %s",
  async (method, path, status) => {
    await using service = startService(slow);
    const headers = { Authorization: `Basic ${btoa("alice:secret")}` };
    expect((await service.send(method, path, { headers })).status).toBe(status);
  },
);

test.concurrent("a long list is complete although its client does not read for longer than the idle timeout", async () => {
  const count = 30_000;
  await using service = startService({ store: await storeOf(count) });
  const socket = await startReading(service.port);
  await Bun.sleep(SLOW_MS);
  expect(JSON.parse(unchunked(await readToEnd(socket)))).toHaveLength(count);
});

/** Opens a connection and sends some bytes, then a few each second. Returns the milliseconds until the server closes it. */
async function closedAfter(open: () => Promise<Socket>, first: string, dripped: string): Promise<number> {
  // On a busy machine, the server may accept the connection long before the client learns of it.
  const started = performance.now();
  const socket = await open();
  const { promise, resolve } = Promise.withResolvers<void>();
  for (const event of ["end", "error", "close"]) socket.on(event, () => resolve());
  socket.resume();
  if (first !== "") socket.write(first);
  const drip = setInterval(() => {
    if (dripped !== "" && socket.writable) socket.write(dripped);
  }, 1000);
  await promise;
  clearInterval(drip);
  socket.destroy();
  return performance.now() - started;
}
