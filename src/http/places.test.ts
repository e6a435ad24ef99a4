import { describe, expect, test } from "bun:test";
import { connect, type Socket } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { connect as connectTls } from "node:tls";
import { makeCertificate } from "../../test/certificate.ts";
import { capturingLog } from "../../test/log.ts";
import { request, statusOf } from "../../test/message.ts";
import { verdict } from "../../test/problem.ts";
import { startService, type TestService } from "../../test/service.ts";
import { follow } from "../../test/sse.ts";
import { storeWith } from "../../test/store.ts";
import { Failure } from "../failure.ts";
import { openMemory } from "../storage/memory.ts";
import { listenTls } from "./listen.ts";
import { createService } from "./service.ts";
import { parseCertificate } from "./tls.ts";

/** How many POSTs come at a time where that is the point. */
const AT_ONCE = Number(process.env.TODO_TEST_AT_ONCE ?? 1000);

/** A store whose inserts wait until they are let go. */
function stuckStore() {
  const memory = openMemory();
  let letGo = Promise.withResolvers<void>();
  const store = storeWith({
    ...memory,
    insert: async (title) => {
      await letGo.promise;
      return memory.insert(title);
    },
  });
  return {
    store,
    /** Lets those go that wait; the next ones wait again. */
    letGo: (): void => {
      letGo.resolve();
      letGo = Promise.withResolvers();
    },
  };
}

const post = (service: TestService): Promise<Response> =>
  service.sendJson("POST", "/api/todos", { title: "x" });

describe("requests that wait for their answer", () => {
  test("are as many as may be; the next is refused, until one is answered", async () => {
    const { store, letGo } = stuckStore();
    await using service = startService({ store, maxRequests: 2 });
    for (let round = 0; round < 3; round++) {
      const waiting = [post(service), post(service)];
      await sleep(20);
      const asked = performance.now();
      const refused = await post(service);
      // Else those who ask again at once would leave no time for answers.
      expect(performance.now() - asked).toBeGreaterThan(900);
      expect(refused.headers.get("retry-after")).toBe("5");
      expect(await verdict(refused)).toEqual([503, "overloaded"]);
      letGo();
      expect((await Promise.all(waiting)).map(({ status }) => status)).toEqual([201, 201]);
    }
  });

  test("shut out none of another kind: readers, other paths, and who asks for its health", async () => {
    const { store, letGo } = stuckStore();
    await store.list({});
    await using service = startService({ store, maxRequests: 1, lookupClient: () => ({ name: "client" }) });
    const waiting = post(service);
    await sleep(20);
    const asked: [method: string, path: string, status: number][] = [
      ["GET", "/livez", 200],
      ["GET", "/readyz", 200],
      ["GET", "/api/todos", 200],
      ["HEAD", "/api/todos", 200],
      ["OPTIONS", "/api/todos", 204],
      ["GET", "/api/todos/1", 404],
      ["DELETE", "/api/todos/1", 404],
      ["GET", "/api/whoami", 200],
      ["POST", "/api/todos", 503],
    ];
    const headers = { Authorization: "Bearer x" };
    for (const [method, path, status] of asked) {
      const response = await service.send(method, path, { headers });
      expect([method, path, response.status]).toEqual([method, path, status]);
    }
    letGo();
    expect((await waiting).status).toBe(201);
  });

  test("leave their places when they fail", async () => {
    const insert = () => Promise.reject(new Failure("store_unavailable"));
    await using service = startService({ store: storeWith({ insert }), maxRequests: 1 });
    for (let times = 0; times < 3; times++)
      expect(await verdict(await post(service))).toEqual([503, "store_unavailable"]);
  });

  test("are also those whose body has not come; they leave their places when they go away", async () => {
    await using service = startService({ maxRequests: 2 });
    const head = request("POST /api/todos", ["Content-Type: application/json", "Content-Length: 99"]);
    for (let round = 0; round < 3; round++) {
      const sockets = [1, 2].map(() => connect(service.port, "127.0.0.1"));
      for (const socket of sockets) socket.write(head);
      await sleep(50);
      expect((await post(service)).status).toBe(503);
      for (const socket of sockets) socket.destroy();
      await sleep(50);
      expect((await post(service)).status).toBe(201);
    }
  });

  test("in a flood are logged once, and not each", async () => {
    const { log, lines } = capturingLog();
    const { store, letGo } = stuckStore();
    let now = 0;
    await using service = startService({ store, log, maxRequests: 1, now: () => now });
    const waiting = post(service);
    await sleep(20);
    for (const { status } of await Promise.all([1, 2, 3, 4, 5].map(() => post(service))))
      expect(status).toBe(503);
    now = 10_000;
    expect((await post(service)).status).toBe(503);
    letGo();
    await waiting;
    const line = { level: "warn", message: "overloaded" } as const;
    expect(lines).toEqual([
      { ...line, fields: { route: "/api/todos", times: 1 } },
      { ...line, fields: { route: "/api/todos", times: 5 } },
    ]);
  });

  test(`${AT_ONCE} writes to a slow store at once are taken or refused, and reads go on`, async () => {
    const memory = openMemory();
    const most = AT_ONCE / 10;
    let waiting = 0;
    let waitingMost = 0;
    const insert = async (title: string) => {
      waitingMost = Math.max(waitingMost, ++waiting);
      await sleep(3000);
      waiting--;
      return memory.insert(title);
    };
    await using service = startService({ store: storeWith({ ...memory, insert }), maxRequests: most });
    const statuses = Promise.all(Array.from({ length: AT_ONCE }, () => postRaw(service.port)));
    await sleep(500);
    for (let times = 0; times < 10; times++) {
      const started = performance.now();
      expect((await service.send("GET", "/api/todos?limit=1")).status).toBe(200);
      // No reader waits for a writer's three seconds.
      expect(performance.now() - started).toBeLessThan(1500);
    }
    const count = async (sought: number) => (await statuses).filter((status) => status === sought).length;
    expect(waitingMost).toBe(most);
    expect(await count(201)).toBeGreaterThanOrEqual(most);
    expect(await count(503)).toBeGreaterThan(0);
    expect((await count(201)) + (await count(503))).toBe(AT_ONCE);
    expect((await post(service)).status).toBe(201);
  }, 30_000);
});

async function postRaw(port: number): Promise<number | undefined> {
  const socket = connect(port, "127.0.0.1");
  const body = '{"title":"x"}';
  const headers = ["Content-Type: application/json", `Content-Length: ${body.length}`];
  socket.write(request("POST /api/todos", headers, body));
  return statusOf(Buffer.concat(await Array.fromAsync<Buffer>(socket)).toString("latin1"));
}

describe("readers of events", () => {
  test("are as many as may be; the next is refused, until one goes", async () => {
    const { log, lines } = capturingLog();
    await using service = startService({ maxSubscribers: 2, log });
    await using first = await follow(service.url);
    for (let round = 0; round < 3; round++) {
      const second = await follow(service.url);
      const refused = await service.send("GET", "/api/events");
      expect(refused.headers.get("retry-after")).toBe("5");
      expect(await verdict(refused)).toEqual([503, "overloaded"]);
      expect((await post(service)).status).toBe(201);
      await second.close();
      await sleep(50);
    }
    expect((await first.take(4)).length).toBe(4);
    expect(lines).toEqual([
      { level: "warn", fields: { readers: 2, times: 1 }, message: "too many readers of events" },
    ]);
  });

  test("are not those who ask with HEAD", async () => {
    await using service = startService({ maxSubscribers: 2 });
    for (let times = 0; times < 5; times++)
      expect((await service.send("HEAD", "/api/events")).status).toBe(200);
  });
});

describe("a connection that stalls is closed within 15 seconds:", () => {
  const JSON_TYPE = "Content-Type: application/json";
  const cases: [what: string, first: string, dripped: string][] = [
    ["one that sends nothing", "", ""],
    ["half a head", "GET /livez HTTP/1.1\r\nHost: local", ""],
    ["a head that drips", "GET /livez HTTP/1.1\r\nHost: localhost\r\nX: ", "x"],
    ["one kept alive", "GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n", ""],
    ["a body that does not come", request("POST /api/todos", [JSON_TYPE, "Content-Length: 99"]), ""],
    ["a body that drips", request("POST /api/todos", [JSON_TYPE, "Content-Length: 99"]), " "],
    ["chunks that drip", request("POST /api/todos", [JSON_TYPE, "Transfer-Encoding: chunked"]), "1\r\n \r\n"],
    [
      "a chunk that drips",
      request("POST /api/todos", [JSON_TYPE, "Transfer-Encoding: chunked"], "ff\r\n"),
      " ",
    ],
    [
      "a body nobody asked for, that drips",
      "GET /livez HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99\r\n\r\n",
      " ",
    ],
  ];

  test.concurrent.each(cases)(
    "%s",
    async (_what, first, dripped) => {
      await using service = startService();
      const socket = connect(service.port, "127.0.0.1");
      expect(await closedAfter(socket, first, dripped)).toBeWithin(8000, 15_000);
    },
    20_000,
  );

  test.concurrent.each<[what: string, ALPNProtocols: string[], first: string, dripped: string]>([
    ["no handshake", [], "", ""],
    ["one that sends nothing", ["http/1.1"], "", ""],
    ["a head that drips", ["http/1.1"], "GET /livez HTTP/1.1\r\nHost: localhost\r\nX: ", "x"],
    ["one kept alive", ["http/1.1"], "GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n", ""],
    ["HTTP/2 that asks nothing", ["h2"], "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0", ""],
  ])(
    "%s, over TLS",
    async (_what, ALPNProtocols, first, dripped) => {
      const { cert, key } = makeCertificate();
      const service = createService({ store: openMemory() });
      const listener = listenTls(service, parseCertificate(cert, key), { host: "127.0.0.1", port: 0 });
      const address = { port: Number(new URL(listener.url).port), host: "127.0.0.1" };
      const socket =
        ALPNProtocols.length === 0
          ? connect(address)
          : connectTls({ ...address, servername: "localhost", ca: cert, ALPNProtocols });
      const ms = await closedAfter(socket, first, dripped);
      await listener.abort();
      expect(ms).toBeWithin(8000, 15_000);
    },
    20_000,
  );
});

/** Milliseconds until the server closes a connection that sends some bytes, then a few each second. */
async function closedAfter(socket: Socket, first: string, dripped: string): Promise<number> {
  const started = performance.now();
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
