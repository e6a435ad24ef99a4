import { expect, test } from "bun:test";
import { once } from "node:events";
import openapi from "../../openapi.json" with { type: "json" };
import { Connection, openSocket, portClosed, readToEnd, sendRaw } from "../../test/raw-http.ts";
import { startService } from "../../test/service.ts";
import { storeWith } from "../../test/store.ts";
import { ServiceError } from "../error.ts";

test("GET / lists the endpoints", async () => {
  await using service = startService();
  const text = await (await service.send("GET", "/")).text();
  for (const path of ["/api/todos", "/api/events", "/api/whoami", "/admin/", "/api/openapi.json"])
    expect(text).toContain(path);
});

test("GET /api/openapi.json returns the OpenAPI document", async () => {
  await using service = startService();
  const response = await service.send("GET", "/api/openapi.json");
  expect(JSON.parse(await response.text())).toEqual(openapi);
});

test.each(["/x", "/api", "/api/todos/", "/api/todos/1/", "/api/Todos", "/%", "/%61pi/todos", "/__proto__"])(
  "an unknown path such as %s gets a 404 for every method",
  async (path) => {
    await using service = startService();
    for (const method of ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
      expect([method, await service.outcome(`${method} ${path}`)]).toEqual([method, "404 route_not_found"]);
    expect(await service.outcome(`HEAD ${path}`)).toBe("404");
  },
);

test.each(["position", "checkWrites"])("the service is live but not ready if %s fails", async (call) => {
  const fail = () => Promise.reject(new ServiceError("store_unavailable"));
  const store = storeWith({ [call]: fail });
  await using service = startService({ store });
  expect(await service.outcome("GET /livez")).toBe("200");
  expect(await service.outcome("GET /readyz")).toBe("503 store_unavailable");
});

test("the health of the service is not ready while draining, and each response closes its connection", async () => {
  await using service = startService();
  const keptAlive = (line: string) => `${line} HTTP/1.1\r\nHost: localhost\r\n\r\n`;
  using connection = await Connection.open(service.port);
  for (const [path, body] of [
    ["/livez", "ok\n"],
    ["/readyz", "ready\n"],
  ] as const) {
    const answer = await connection.exchange(keptAlive(`GET ${path}`));
    expect(answer).not.toMatch(/^connection: close/im);
    expect(answer).toEndWith(body);
  }

  service.drain();
  for (const [line, status] of [
    ["GET /livez", 200],
    ["GET /readyz", 503],
    ["GET /api/todos", 200],
    ["GET /api/todos/9", 404],
    ["GET /admin/", 401],
    ["GET /nowhere", 404],
    ["OPTIONS /api/todos", 204],
  ] as const) {
    const { text, closed } = await sendRaw(service.port, keptAlive(line));
    expect([line, closed]).toEqual([line, true]);
    expect(text).toStartWith(`HTTP/1.1 ${status} `);
    expect(text).toMatch(/^connection: close\r$/im);
    if (status === 503) expect(text).toMatch(/"code":"stopping"/);
  }
});

const LIVEZ = "GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n";
const LAST = /^HTTP\/1\.1 200 [\s\S]*^connection: close\r$/im;

test("a listener that shuts down responds on new connections while it drains", async () => {
  await using service = startService();
  const stopped = service.stop();
  expect((await sendRaw(service.port, LIVEZ, 4000)).text).toMatch(LAST);
  expect(await stopped).toBe(0);
});

test("a listener that shuts down rejects connections after draining, and responds to the accepted requests", async () => {
  const arrived = Promise.withResolvers<void>();
  const released = Promise.withResolvers<void>();
  const lookupClient = async () => {
    arrived.resolve();
    await released.promise;
    return { name: "client" };
  };
  await using service = startService({ credentials: { lookupClient } });
  const answer = fetch(`${service.url}/api/whoami`, { headers: { Authorization: "Bearer x" } });
  await arrived.promise;
  const stopped = service.stop();
  await portClosed(service.port);
  released.resolve();
  expect(await (await answer).text()).toBe("client");
  await stopped;
});

test.each([
  ["", 0],
  [", also if the process was too busy to read it in time", 1000],
])("a shutdown answers one more request per connection, with Connection: close%s", async (_what, busyMs) => {
  await using service = startService();
  const socket = await openSocket(service.port, LIVEZ);
  await once(socket, "data");
  const stopped = service.stop();
  socket.write(LIVEZ);
  // Afterwards, the drain period is over as well: the timer may fire before the request is read.
  Bun.sleepSync(busyMs);
  expect(await readToEnd(socket)).toMatch(LAST);
  await stopped;
});

test("a listener that shuts down closes a connection that has sent half a request", async () => {
  await using service = startService();
  const socket = await openSocket(service.port, "GET /li");
  await service.stop();
  expect(await readToEnd(socket)).toBe("");
});

const secrets = {
  headers: {
    Authorization: "Bearer s3cret-token",
    Cookie: "s3cret-cookie",
    "Content-Type": "application/json",
    "User-Agent": "s3cret-agent",
    "X-Request-Id": "s3cret\tid",
  },
};
const requests: [method: string, path: string, logged: string, status: number, body?: string][] = [
  ["GET", "/?s3cret", "/", 200],
  ["HEAD", "/api/todos?access_token=s3cret", "/api/todos", 200],
  ["POST", "/api/todos", "/api/todos", 201, '{"title":"s3cret-title"}'],
  ["POST", "/api/todos", "/api/todos", 400, "s3cret"],
  ["GET", "/api/todos/1?s3cret", "/api/todos/1", 200],
  ["GET", "/api/todos/s3cret", "/api/todos/:id", 400],
  ["DELETE", "/api/todos/1", "/api/todos/1", 204],
  ["GET", "/api/whoami/s3cret", "/api/whoami/*", 401],
  ["GET", "/admin/", "/admin/", 401],
  ["GET", "/s3cret/path", "/*", 404],
];

test("the access log has one line per request and no secrets", async () => {
  let now = 0;
  await using service = startService({ accessLog: true, monotonicNow: () => (now += 1.2344) });
  const ids = new Set<string | null>();
  for (const [method, sent, path, status, body] of requests) {
    const init = body === undefined ? secrets : { ...secrets, body };
    const response = await service.send(method, sent, init);
    const id = response.headers.get("x-request-id");
    expect(id).toMatch(/^[0-9a-f-]{36}$/);
    ids.add(id);
    const written = service.lines.splice(0).filter(({ message }) => message === "request");
    const fields = { id, address: "127.0.0.1", method, path, status, ms: 1.234 };
    expect(written).toEqual([{ level: "info", fields, message: "request" }]);
    expect(JSON.stringify(written)).not.toContain("s3cret");
  }
  expect(ids.size).toBe(requests.length);
  expect(service.logText()).not.toContain("s3cret");
});

test("the access log has the request id and the trace id that the error log has, and responses have no trace id", async () => {
  const store = storeWith({ list: () => Promise.reject(new Error("broken")) });
  await using service = startService({ store, accessLog: true });
  const trace = "4bf92f3577b34da6a3ce929d0e0e4736";
  const headers = { traceparent: `00-${trace}-00f067aa0ba902b7-01`, tracestate: "s3cret=s3cret" };
  const response = await service.send("GET", "/api/todos", { headers });
  const id = response.headers.get("x-request-id");
  expect(service.lines).toMatchObject([
    { level: "error", fields: { id, method: "GET", route: "/api/todos", code: "internal_error", trace } },
    { level: "info", fields: { id, method: "GET", path: "/api/todos", status: 500, trace } },
  ]);
  expect(`${[...response.headers]}`).not.toMatch(new RegExp(`${trace}|s3cret|trace`, "i"));
});

test("the access log is off by default", async () => {
  await using service = startService();
  for (const path of ["/", "/api/todos", "/nowhere", "/api/todos/x"])
    expect((await service.send("GET", path)).headers.has("x-request-id")).toBe(false);
  expect(service.lines).toEqual([]);
});
