import { expect, test } from "bun:test";
import { type ConnectionOptions, connect, type SecureVersion, type TLSSocket } from "node:tls";
import { shownAt } from "../../../test/certificate.ts";
import { collect } from "../../../test/command.ts";
import { as, basic } from "../../../test/credentials.ts";
import { ask, POST_TODO } from "../../../test/http2.ts";
import { chunked, portClosed, sendRaw, statusOf } from "../../../test/raw-http.ts";
import { errorOf } from "../../../test/rejection.ts";
import { newCertificate, startTls } from "../../../test/service.ts";
import { storeWith } from "../../../test/store.ts";
import { until } from "../../../test/until.ts";
import { createFixedUserCheck } from "../../credential/user.ts";
import { openMemory } from "../../storage/memory/store.ts";
import { createService } from "../service.ts";
import { listen, listenTls } from "./listen.ts";

const HSTS = "max-age=31536000";
const VERSIONS = ["http1.1", "http2"] as const;
const ADMIN = basic("admin", "s3cret");
const AUTHORIZED = as(ADMIN);
const checkUser = createFixedUserCheck("admin", "s3cret");
const ANY_PORT = { host: "127.0.0.1", port: 0 };

const newService = () => createService({ store: openMemory(), credentials: { checkUser } });
const portOf = ({ url }: { readonly url: string }): number => Number(new URL(url).port);

function waitingStore() {
  const [arrived, released] = [Promise.withResolvers<void>(), Promise.withResolvers<undefined>()];
  const get = () => {
    arrived.resolve();
    return released.promise;
  };
  return { store: storeWith({ get }), arrived: arrived.promise, release: () => released.resolve(undefined) };
}

test.each(VERSIONS)("over TLS, every Host is accepted over %s unless hosts are listed", async (version) => {
  for (const [allowedHosts, status] of [[[], 200] as const, [["todo.example"], 421] as const]) {
    await using service = startTls({ network: { allowedHosts } });
    const headers = { Host: "elsewhere.example" };
    expect((await service.send(version, "/api/todos", { headers })).status).toBe(status);
  }
});

const BIG = JSON.stringify({ title: "x".repeat(100_000) });
const json = (method: string, body: string): RequestInit => ({
  method,
  headers: { "Content-Type": "application/json" },
  body,
});
const surfaces: readonly [path: string, init: RequestInit, status: number][] = [
  ["/", {}, 200],
  ["/api/todos?limit=1", {}, 200],
  ["/api/todos", { method: "HEAD" }, 200],
  ["/api/todos", { headers: { "If-None-Match": "*" } }, 304],
  ["/api/todos/1", {}, 200],
  ["/api/todos/x", {}, 400],
  ["/api/todos", { method: "OPTIONS" }, 204],
  ["/api/todos", { method: "DELETE" }, 405],
  ["/api/todos/1", json("PATCH", '{"done":true}'), 200],
  ["/api/todos", json("POST", '{"title":" "}'), 422],
  ["/api/todos", json("POST", "{"), 400],
  ["/api/todos", { method: "POST", body: new Uint8Array(2) }, 415],
  ["/api/todos", json("POST", BIG), 413],
  ["/api/whoami", {}, 401],
  ["/admin/", AUTHORIZED, 200],
  ["/admin", AUTHORIZED, 308],
  ["/nowhere", {}, 404],
  ["/api/todos/1", { method: "DELETE" }, 500],
];

async function seen(response: Response) {
  // Only HTTP/1.1 sends a length in a response to HEAD, and Keep-Alive.
  const left = ["date", "content-length", "connection", "keep-alive"];
  const headers = [...response.headers].filter(([name]) => !left.includes(name));
  return { status: response.status, headers, text: await response.text() };
}

test("HTTP/1.1 and HTTP/2 get the same responses, over TLS, with HSTS", async () => {
  const fail = () => Promise.reject(new Error("broken"));
  await using served = startTls({ store: storeWith({ delete: fail }), credentials: { checkUser } });
  await served.send("http1.1", "/api/todos", json("POST", '{"title":"a"}'));
  for (const [path, init, status] of surfaces) {
    const first = await seen(await served.send("http1.1", path, init));
    const second = await seen(await served.send("http2", path, init));
    expect([path, init.method, first.status]).toEqual([path, init.method, status]);
    expect(second).toEqual({ ...first, headers: expect.arrayContaining(first.headers) });
    expect(second.headers.length).toBe(first.headers.length);
    expect(Object.fromEntries(first.headers)["strict-transport-security"]).toBe(HSTS);
  }
});

test.each(VERSIONS)("over TLS, %s streams a list or page above 16 KiB completely", async (version) => {
  const store = openMemory();
  for (let id = 1; id <= 1000; id++) await store.insert("😀".repeat(120));
  const plain = listen(createService({ store }), ANY_PORT);
  await using served = startTls({ store });
  for (const path of ["/api/todos", "/api/todos?limit=900", "/api/todos?done=false"]) {
    const expected = await fetch(plain.url + path);
    const response = await served.send(version, path);
    expect(response.headers.has("content-length")).toBe(false);
    for (const name of ["etag", "link", "todo-position"]) {
      expect(response.headers.get(name)).toBe(expected.headers.get(name));
    }
    expect(Buffer.compare(await response.bytes(), await expected.bytes())).toBe(0);
  }
  await plain.abort();
});

test.each(VERSIONS)("over TLS, events are sent over %s until the shutdown", async (version) => {
  const store = openMemory();
  await using served = startTls({ store });
  const { body, headers } = await served.send(version, "/api/events");
  expect(headers.get("strict-transport-security")).toBe(HSTS);
  const events = collect(body ?? new ReadableStream());
  await store.insert("a");
  const created = 'event: created\ndata: {"id":1,"title":"a","done":false}\n\n';
  await until(() => events.text().includes(created), "the event arrives");
  await served.stop();
  await events.done;
});

test("over TLS, the server's own origin has only the scheme https", async () => {
  const store = openMemory();
  await using served = startTls({ store, credentials: { keys: store.keys, checkUser } });
  const { host } = new URL(served.url);
  const from = (origin: string) => ({
    ...as(ADMIN, { "Content-Type": "application/json", Origin: origin }),
    method: "POST",
    body: '{"name":"ci"}',
  });
  expect((await served.send("http2", "/admin/keys", from(`http://${host}`))).status).toBe(403);
  expect((await served.send("http2", "/admin/keys", from(`https://${host}`))).status).toBe(201);
});

test("over TLS, a body without a Content-Length is read, and an absent or empty body gets the defaults", async () => {
  const store = openMemory();
  await using served = startTls({ store, credentials: { keys: store.keys, checkUser } });
  const session = served.session();
  const post = (path: string, body?: string) =>
    ask(session, { ...POST_TODO, ":path": path, ...AUTHORIZED.headers }, body);
  const { id } = JSON.parse((await post("/admin/keys", '{"name":"ci"}')).text);
  const statuses: (number | undefined)[] = [];
  for (const body of ['{"overlap":"soon"}', undefined, "", '{"overlap":"0"}'])
    statuses.push((await post(`/admin/keys/${id}/rotate`, body)).status);
  expect(statuses).toEqual([422, 201, 201, 201]);
  // Only the last of the four is still valid.
  const keys = await store.keys.list();
  expect(keys.map(({ expiresAt }) => expiresAt !== undefined && expiresAt <= Date.now())).toEqual([
    true,
    true,
    true,
    false,
  ]);
});

test.each<[what: string, expected: boolean, version: SecureVersion, ciphers: string | undefined]>([
  ["TLS 1.1", false, "TLSv1.1", undefined],
  ["TLS 1.2", true, "TLSv1.2", undefined],
  ["TLS 1.2 without authenticated encryption", false, "TLSv1.2", "ECDHE-ECDSA-AES128-SHA"],
  ["TLS 1.3", true, "TLSv1.3", undefined],
])("%s is accepted: %p", async (_what, expected, version, ciphers) => {
  await using served = startTls();
  const ca = served.certificate.cert;
  const options = { port: served.port, ca, ciphers, minVersion: version, maxVersion: version };
  expect(await isAccepted(options)).toBe(expected);
});

test.each([
  ["ECDSA", {}],
  ["RSA", { rsaBits: 2048 }],
])("TLS 1.2 with each cipher for %s is accepted", async (algorithm, certificate) => {
  await using served = startTls({}, {}, newCertificate(certificate));
  const ca = served.certificate.cert;
  for (const suite of ["AES128-GCM-SHA256", "AES256-GCM-SHA384", "CHACHA20-POLY1305"]) {
    const ciphers = `ECDHE-${algorithm}-${suite}`;
    const options: ConnectionOptions = { port: served.port, ca, ciphers, maxVersion: "TLSv1.2" };
    expect([ciphers, await isAccepted(options)]).toEqual([ciphers, true]);
  }
});

async function isAccepted(options: ConnectionOptions): Promise<boolean> {
  const socket = connect(options);
  const isConnected = await becomesSecure(socket);
  socket.destroy();
  return isConnected;
}

test("Keep-Alive is sent over plain HTTP with the idle timeout and without HSTS, until the shutdown", async () => {
  const listener = listen(newService(), ANY_PORT);
  for (const path of ["/", "/api/todos", "/livez", "/nowhere", "/admin/"]) {
    const { headers } = await fetch(listener.url + path);
    expect([headers.get("keep-alive"), headers.has("strict-transport-security")]).toEqual([
      "timeout=5",
      false,
    ]);
  }
  const stopped = listener.stop();
  const { headers } = await fetch(`${listener.url}/api/todos`);
  expect([headers.get("connection"), headers.get("keep-alive")]).toEqual(["close", null]);
  await stopped;
});

test.each([
  ["a create", "POST /api/todos", 201],
  ["an error", "POST /admin/keys", 401],
  ["a GET", "GET /api/todos", 200],
])("a chunked body closes the connection, without Keep-Alive: %s", async (_what, line, status) => {
  const listener = listen(newService(), ANY_PORT);
  const head = `${line} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n`;
  const { text, closed } = await sendRaw(portOf(listener), head + chunked('{"title":"x"}', 5));
  expect([statusOf(text), closed]).toEqual([status, true]);
  expect(text).toMatch(/^Connection: close\r$/im);
  expect(text).not.toMatch(/^Keep-Alive:/im);
  await listener.abort();
});

test.each([
  ["http1.1", "timeout=5"],
  ["http2", null],
] as const)("Keep-Alive over TLS with %s is %p", async (version, expected) => {
  await using served = startTls();
  expect((await served.send(version, "/api/todos")).headers.get("keep-alive")).toBe(expected);
});

const address = (port: number) => ({ host: "127.0.0.1", port });
const inUse = expect.objectContaining({ code: "EADDRINUSE" });

test("a port in use is reported by listeners with and without TLS, whether the first listener has TLS or not", async () => {
  await using served = startTls();
  const plain = listen(newService(), address(0));
  for (const port of [served.port, portOf(plain)])
    expect(() => listenTls(newService(), newCertificate(), address(port))).toThrow(inUse);
  expect(() => listen(newService(), address(served.port))).toThrow(inUse);
  await plain.abort();
});

// RFC 9113 §6, §7, and RFC 7541 for a head.
const [HEADERS, RST_STREAM, SETTINGS, PING] = [1, 3, 4, 6];
const [END_STREAM, END_HEADERS] = [1, 4];
const CANCEL = Buffer.from([0, 0, 0, 8]);
const ENHANCE_YOUR_CALM = 11;
const GET_ROOT = Buffer.from([0x82, 0x87, 0x84, 0x01, 9, ...Buffer.from("localhost")]);

function frame(type: number, flags: number, stream: number, payload = Buffer.alloc(0)): Buffer {
  const head = Buffer.alloc(9);
  head.writeUIntBE(payload.length, 0, 3);
  head.writeUInt8(type, 3);
  head.writeUInt8(flags, 4);
  head.writeUInt32BE(stream, 5);
  return Buffer.concat([head, payload]);
}

test("HTTP/2 handles hundreds of concurrent requests on one connection", async () => {
  await using served = startTls();
  const session = served.session();
  // The server announces its limit of concurrent streams there.
  await new Promise((resolve) => session.once("remoteSettings", resolve));
  expect(session.remoteSettings.maxConcurrentStreams).toBe(256);
  const answers = await Promise.all(
    Array.from({ length: 256 }, (_, n) => ask(session, POST_TODO, JSON.stringify({ title: `t${n}` }))),
  );
  expect(answers.filter(({ status }) => status !== 201)).toEqual([]);
  const ids = answers.map(({ text }) => Number(/"id":(\d+)/.exec(text)?.[1]));
  expect(ids.toSorted((a, b) => a - b)).toEqual(ids.map((_, index) => index + 1));
});

test("over HTTP/2, a body that differs from its Content-Length stores nothing", async () => {
  await using served = startTls();
  const session = served.session();
  for (const length of ["1", "12", "14", "200", "-1", "x"]) {
    const { status } = await ask(session, { ...POST_TODO, "content-length": length }, '{"title":"x"}');
    expect([length, status]).toEqual([length, undefined]);
  }
  expect((await ask(session, { ":path": "/api/todos" })).text).toBe("[]");
});

test("over HTTP/2, request heads above 16 KiB get 431 and do not affect other streams", async () => {
  await using served = startTls();
  const session = served.session();
  expect((await ask(session, { ":path": "/livez", x: "x".repeat(15_000) })).status).toBe(200);
  expect((await ask(session, { ":path": "/livez", x: "x".repeat(17_000) })).status).toBe(431);
  expect((await ask(session, { ":path": "/livez" })).status).toBe(200);
});

test("over HTTP/2, a client that opens and resets streams is disconnected, and others are served", async () => {
  await using served = startTls();
  const socket = connect({
    port: served.port,
    servername: "localhost",
    ca: served.certificate.cert,
    ALPNProtocols: ["h2"],
  });
  socket.setMaxListeners(0).on("error", () => {});
  const chunks: Buffer[] = [];
  socket.on("data", (chunk: Buffer) => chunks.push(chunk));
  socket.write("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
  socket.write(frame(SETTINGS, 0, 0));
  let streams = 0;
  while (streams < 100_000 && !socket.closed) {
    const burst = Array.from({ length: 50 }, () => {
      const id = 2 * streams++ + 1;
      return [frame(HEADERS, END_STREAM | END_HEADERS, id, GET_ROOT), frame(RST_STREAM, 0, id, CANCEL)];
    });
    // With the answer to a ping, the server has read all: otherwise it resets the connection, and GOAWAY is lost.
    socket.write(Buffer.concat([...burst.flat(), frame(PING, 0, 0, Buffer.alloc(8))]));
    await new Promise((resolve) => socket.once("data", resolve).once("close", resolve));
  }
  await until(() => socket.closed, "the client is disconnected");
  // GOAWAY ends with the last stream and the error code, four bytes each.
  expect(Buffer.concat(chunks).at(-1)).toBe(ENHANCE_YOUR_CALM);
  expect((await served.send("http2", "/livez")).status).toBe(200);
});

test.each(VERSIONS)("over TLS, a draining server responds on new %s connections", async (version) => {
  await using served = startTls();
  served.stop(10_000);
  const response = await served.send(version, "/readyz");
  expect(response.status).toBe(503);
  // HTTP/2 has no such header (RFC 9113 §8.2.2); its connections end with GOAWAY.
  expect(response.headers.get("connection")).toBe(version === "http2" ? null : "close");
  expect(await response.text()).toContain('"code":"stopping"');
});

test("over HTTP/2, a shutdown responds on accepted streams, and sends GOAWAY", async () => {
  const { store, arrived, release } = waitingStore();
  await using served = startTls({ store });
  const session = served.session();
  const answer = ask(session, { ":path": "/api/todos/1" });
  await arrived;
  const gone = new Promise<number>((resolve) => session.on("goaway", resolve));
  const stopped = served.stop();
  expect(await gone).toBe(0);
  release();
  expect((await answer).status).toBe(404);
  await stopped;
});

const TITLE = '{"title":"a"}';
const REQUEST = `POST /api/todos HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: ${TITLE.length}\r\n\r\n${TITLE}`;

/** Sends requests one after the other, and opens a new connection when the last one is closed. Counts lost requests. */
async function load(port: number, ca: readonly string[], isOver: () => boolean) {
  const count = { answered: 0, lost: 0, unconnected: 0, closed: 0 };
  while (!isOver()) {
    const socket = connect({ port, host: "127.0.0.1", servername: "localhost", ca: [...ca] });
    socket.setEncoding("latin1");
    if (!(await becomesSecure(socket))) {
      count.unconnected++;
      continue;
    }
    for (let open = true; open && !isOver(); ) {
      const answer = await exchange(socket);
      if (!answer.startsWith("HTTP/1.1 201 ")) {
        count.lost++;
        break;
      }
      count.answered++;
      open = !/^connection: close/im.test(answer);
      // The last answer keeps HSTS, and does not announce a connection that stays.
      if (!open)
        count.closed += Number(
          /^strict-transport-security: max-age=/im.test(answer) && !/^keep-alive:/im.test(answer),
        );
      else await Bun.sleep(Math.random() * 50);
      // A connection that closes before the next request is sent loses nothing.
      open &&= !socket.destroyed;
    }
    socket.destroy();
  }
  return count;
}

const becomesSecure = (socket: TLSSocket): Promise<boolean> =>
  new Promise((resolve) => {
    socket.on("secureConnect", () => resolve(true));
    socket.on("error", () => resolve(false));
    socket.on("close", () => resolve(false));
  });

const exchange = (socket: TLSSocket): Promise<string> =>
  new Promise((resolve) => {
    let text = "";
    const onClose = () => resolve(text);
    const onData = (chunk: string) => {
      text += chunk;
      if (!text.includes("}")) return;
      socket.off("data", onData).off("close", onClose);
      resolve(text);
    };
    socket.on("data", onData).on("close", onClose);
    socket.write(REQUEST);
  });

/** Waits until none of 32 connections receives a certificate, because the kernel chooses a listener for each. */
const untilRetired = (port: number, certificate: string): Promise<void> =>
  until(async () => {
    for (let n = 0; n < 32; n++) {
      // A connection that arrives while the old listener closes can be reset.
      if ((await shownAt(port).catch(() => certificate)) === certificate) return false;
    }
    return true;
  }, "no connection receives the old certificate");

test("a certificate renewal loses no request", async () => {
  const store = openMemory();
  // Much longer than the clients pause. A busy machine may pause them longer.
  await using served = startTls({ store }, { retireMs: 4_000 });
  const certificates = [newCertificate(), newCertificate()];
  const ca = [served.certificate, ...certificates].map(({ cert }) => cert);
  let over = false;
  const loads = Array.from({ length: 10 }, () => load(served.port, ca, () => over));
  for (const certificate of certificates) {
    const before = await shownAt(served.port);
    await served.renew(certificate);
    await untilRetired(served.port, before);
  }
  over = true;
  const counts = await Promise.all(loads);
  const sum = (name: keyof (typeof counts)[number]) => counts.reduce((all, one) => all + one[name], 0);
  expect(sum("lost")).toBe(0);
  expect(sum("closed")).toBeGreaterThan(10);
  expect((await store.position()).sequence).toBe(sum("answered"));
  // The kernel still owns a connection that has sent nothing, and resets it together with its listener.
  expect(sum("unconnected")).toBeLessThan(sum("closed"));
});

test("a certificate renewal does not interrupt event streams", async () => {
  const store = openMemory();
  await using served = startTls({ store }, { retireMs: 50 });
  const { body } = await served.send("http1.1", "/api/events");
  const events = collect(body ?? new ReadableStream());
  const before = await shownAt(served.port);
  await served.renew(newCertificate());
  await untilRetired(served.port, before);
  await store.insert("a");
  await until(() => events.text().includes("event: created\n"), "the event arrives");
  await served.stop();
  await events.done;
});

test("a certificate renewal in progress does not shorten a shutdown", async () => {
  const { store, arrived, release } = waitingStore();
  await using served = startTls({ store });
  const answer = served.send("http1.1", "/api/todos/1");
  await arrived;
  served.renew(newCertificate());
  const stopped = served.stop();
  await portClosed(served.port);
  release();
  expect([await stopped, (await answer).status]).toEqual([0, 404]);
  await errorOf(shownAt(served.port));
});

test("a certificate renewal in progress does not keep old connections open after an abort, and is ignored after a shutdown", async () => {
  for (const end of ["abort", "stop"] as const) {
    await using served = startTls();
    if (end === "abort") served.renew(newCertificate());
    await served[end]();
    await served.renew(newCertificate());
    await errorOf(shownAt(served.port));
  }
});
