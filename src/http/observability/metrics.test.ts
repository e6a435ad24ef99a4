import { expect, test } from "bun:test";
import { as, basic } from "../../../test/credentials.ts";
import { labelsOf, moved, parseExposition, type Samples } from "../../../test/exposition.ts";
import { statusAndCode } from "../../../test/problem.ts";
import { openSocket, request } from "../../../test/raw-http.ts";
import { startService } from "../../../test/service.ts";
import { storeWith } from "../../../test/store.ts";
import { until } from "../../../test/until.ts";
import { createFixedUserCheck } from "../../credential/user.ts";
import { ServiceError } from "../../error.ts";
import { openMemory } from "../../storage/memory/store.ts";
import { listen } from "../listener/listen.ts";
import { createMetricsService } from "../listener/metrics.ts";
import type { ServiceOptions } from "../service.ts";
import { NOOP_LOG } from "./log.ts";
import { Metrics } from "./metrics.ts";

function startObserved(options: Partial<ServiceOptions> = {}) {
  const metrics = new Metrics({ version: "1.2.3", runtime: "bun 4.5.6" });
  const store = options.store ?? openMemory();
  const service = startService({ ...options, store, observer: metrics.observe(store) });
  const scraped = createMetricsService(metrics, true, NOOP_LOG);
  const exporter = listen(scraped, { host: "127.0.0.1", port: 0 });
  const samples = async (): Promise<Samples> =>
    parseExposition(await (await fetch(`${exporter.url}/metrics`)).text());
  return {
    ...service,
    exporter,
    samples,
    until: (series: string, value: number): Promise<void> =>
      until(async () => (await samples()).get(series) === value, `${series} is ${value}`),
    [Symbol.asyncDispose]: async () => {
      await service[Symbol.asyncDispose]();
      await exporter.abort();
    },
  };
}

const json = (body: unknown): RequestInit => ({
  headers: { "Content-Type": "application/json" },
  body: JSON.stringify(body),
});
const one = (name: string, labels: string) => ({ [`${name}{${labels}}`]: 1 });
const ofAuthentication = (surface: string, outcome: string) =>
  one("todo_authentications_total", `surface="${surface}",outcome="${outcome}"`);
const ofStore = (operation: string, reason: string) =>
  one("todo_store_failures_total", `operation="${operation}",reason="${reason}"`);

const broken = (): never => {
  throw new Error("broken");
};

const options: Partial<ServiceOptions> = {
  store: storeWith({
    setDone: () => Promise.reject(new ServiceError("store_unavailable")),
    delete: () => {
      throw new ServiceError("store_unavailable");
    },
    position: broken,
  }),
  credentials: {
    lookupClient: (token) =>
      token === "down" ? broken() : token === "known" ? { name: "alice" } : undefined,
    checkUser: (user, password) =>
      user === "down" ? broken() : createFixedUserCheck("admin", "secret")(user, password),
  },
  access: { basicFailures: 1 },
};
const todo = "/api/todos/:id";
const refusedWrite = { ...ofStore("setDone", "unavailable"), todo_store_writable: -1 };
const proxied = { headers: { "X-Forwarded-For": "192.0.2.1" } };
const admin = basic("admin", "secret");
const inClear = as(admin, proxied.headers);
const cases: [line: string, init: RequestInit, route: string, status: number, more?: object][] = [
  ["POST /api/todos", json({ title: "milk" }), "/api/todos", 201],
  ["POST /api/todos", json({ title: " " }), "/api/todos", 422],
  ["POST /api/todos", { body: "x" }, "/api/todos", 415],
  ["GET /api/todos", {}, "/api/todos", 200],
  ["HEAD /api/todos", {}, "/api/todos", 200],
  ["OPTIONS /api/todos", {}, "/api/todos", 204],
  ["GET /api/todos/1", {}, todo, 200],
  ["GET /api/todos/007", {}, todo, 404],
  ["GET /api/todos/x", {}, todo, 400],
  ["PUT /api/todos/1", {}, todo, 405],
  ["PROPFIND /api/todos/1", {}, todo, 405],
  ["PATCH /api/todos/1", json({ done: true }), todo, 503, refusedWrite],
  ["DELETE /api/todos/1", {}, todo, 503, ofStore("delete", "unavailable")],
  ["GET /readyz", {}, "/readyz", 500, ofStore("position", "error")],
  ["GET /some/where", {}, "/*", 404],
  ["GET /api/whoami", as("Bearer known"), "/api/whoami", 200, ofAuthentication("bearer", "passed")],
  ["POST /api/whoami", as("Bearer known"), "/api/whoami", 405, ofAuthentication("bearer", "passed")],
  ["GET /api/whoami/x", {}, "/api/whoami/*", 401, ofAuthentication("bearer", "absent")],
  ["GET /api/whoami", as("Bearer a b"), "/api/whoami", 401, ofAuthentication("bearer", "malformed")],
  ["GET /api/whoami", as("Bearer unknown"), "/api/whoami", 401, ofAuthentication("bearer", "wrong")],
  ["GET /api/whoami", as("Bearer down"), "/api/whoami", 503, ofAuthentication("bearer", "unavailable")],
  ["GET /admin/", as(admin), "/admin/", 200, ofAuthentication("basic", "passed")],
  ["GET /admin/", {}, "/admin/", 401, ofAuthentication("basic", "absent")],
  ["GET /admin/", as("Basic !"), "/admin/", 401, ofAuthentication("basic", "malformed")],
  ["GET /admin/", as(basic("admin", "wrong")), "/admin/", 401, ofAuthentication("basic", "wrong")],
  ["GET /admin/", as(admin), "/admin/", 429, ofAuthentication("basic", "throttled")],
  ["GET /admin/", inClear, "/admin/", 403, ofAuthentication("basic", "in_clear")],
  ["GET /admin/", proxied, "/admin/", 403, ofAuthentication("basic", "absent")],
  ["GET /admin/x", as(basic("down", "x")), "/admin/*", 503, ofAuthentication("basic", "unavailable")],
];

test("each kind of request changes only its own series", async () => {
  await using service = startObserved(options);
  for (const [line, init, route, status, more] of cases) {
    const [method = "", path = ""] = line.split(" ");
    const labels = `route="${route}",method="${method === "PROPFIND" ? "other" : method}"`;
    const before = await service.samples();
    await (await fetch(service.url + path, { ...init, method })).arrayBuffer();
    expect([line, moved(before, await service.samples())]).toEqual([
      line,
      {
        ...one("todo_http_requests_total", `${labels},status="${status}"`),
        ...one("todo_http_request_duration_seconds_count", labels),
        ...more,
      },
    ]);
  }
});

test("a full store counts as a store failure, but is writable, and invalid requests do not count", async () => {
  await using service = startObserved({ store: openMemory({ maxTodos: 1 }) });
  const once = { headers: { "Idempotency-Key": "once" } };
  for (const [title, init, outcome] of [
    ["x", once, "201"],
    ["x", once, "201"],
    ["y", once, "422 idempotency_key_reused"],
    ["y", {}, "507 store_full"],
    ["z".repeat(121), {}, "422 validation_failed"],
  ] as const)
    expect(await service.outcome("POST /api/todos", init, { title })).toBe(outcome);
  const samples = await service.samples();
  const failures = [...samples].filter(([name, count]) => name.includes("store_failures") && count > 0);
  expect(failures).toEqual([['todo_store_failures_total{operation="insert",reason="full"}', 1]]);
  expect(samples.get("todo_store_writable")).toBe(1);
});

function slow<Result>(end: () => Result) {
  let now = 0;
  return {
    monotonicNow: () => now,
    operation: async (): Promise<Result> => {
      // The measurement starts when the operation has returned its promise.
      await Promise.resolve();
      now += 30;
      return end();
    },
  };
}

test("durations of requests and store operations are measured", async () => {
  const { monotonicNow, operation: get } = slow(() => undefined);
  await using service = startObserved({ store: storeWith({ get }), monotonicNow });
  for (const _ of [1, 2, 3]) await service.send("GET", "/api/todos/1");
  const samples = await service.samples();
  for (const [name, labels] of [
    ["todo_http_request_duration_seconds", 'route="/api/todos/:id",method="GET"'],
    ["todo_store_operation_duration_seconds", 'operation="get"'],
  ] as const) {
    expect(samples.get(`${name}_count{${labels}}`)).toBe(3);
    expect(samples.get(`${name}_sum{${labels}}`)).toBeCloseTo(0.09);
    const buckets = [...samples].filter(
      ([series]) => series.startsWith(`${name}_bucket{`) && series.includes(labels),
    );
    expect(buckets.length).toBe(15);
    for (const [series, value] of buckets) {
      const { le } = labelsOf(series);
      expect([series, value]).toEqual([series, le === "+Inf" || Number(le) >= 0.03 ? 3 : 0]);
    }
  }
});

test.each<[fails: "insert" | "position", other: string]>([
  // A read that succeeds says nothing about writes.
  ["insert", "GET /api/todos/1"],
  ["position", "GET /livez"],
])("the store is writable until %s fails, and again after it succeeds", async (fails, other) => {
  let isAway = false;
  const memory = openMemory();
  const get = async () => undefined;
  const unlessAway = async <T>(act: () => T) => {
    if (isAway) throw new ServiceError("store_unavailable");
    return act();
  };
  const calls = {
    insert: (title: string) => unlessAway(() => memory.insert(title)),
    position: () => unlessAway(() => memory.position()),
  };
  await using service = startObserved({ store: storeWith({ get, [fails]: calls[fails] }) });
  const asks = { insert: ["POST /api/todos", 201], position: ["GET /readyz", 200] } as const;
  const [line, status] = asks[fails];
  const ask = async (one: string) => {
    const outcome = await service.outcome(one, {}, one.startsWith("POST") ? { title: "x" } : undefined);
    return [Number(outcome.slice(0, 3)), (await service.samples()).get("todo_store_writable")];
  };
  expect(await ask(line)).toEqual([status, 1]);
  isAway = true;
  expect(await ask(line)).toEqual([503, 0]);
  expect((await ask(other))[1]).toBe(0);
  isAway = false;
  expect(await ask(line)).toEqual([status, 1]);
});

test("the store is not writable while checkWrites fails, also without a write", async () => {
  let isAway = true;
  const checkWrites = async () => {
    if (isAway) throw new ServiceError("store_unavailable");
  };
  await using service = startObserved({ store: storeWith({ checkWrites }) });
  await service.until("todo_store_writable", 0);
  for (const _ of [1, 2, 3]) expect((await service.samples()).get("todo_store_writable")).toBe(0);
  isAway = false;
  await service.until("todo_store_writable", 1);
});

test("one check of the writes runs at a time, however many scrapes there are", async () => {
  let checks = 0;
  const checkWrites = (): Promise<void> => {
    checks++;
    return new Promise(() => {});
  };
  await using service = startObserved({ store: storeWith({ checkWrites }) });
  for (const _ of [1, 2, 3]) await service.samples();
  expect(checks).toBe(1);
});

test("requests are in flight until they get a response or are aborted", async () => {
  const gate = Promise.withResolvers<undefined>();
  await using service = startObserved({ store: storeWith({ get: () => gate.promise }) });
  const inFlight = (value: number) => service.until("todo_http_requests_in_flight", value);
  const waiting = [1, 2, 3].map(() => fetch(`${service.url}/api/todos/1`));
  await inFlight(3);
  const upload = request(
    "POST /api/todos",
    ["Content-Type: application/json", "Content-Length: 100"],
    '{"title":',
  );
  const sockets = await Promise.all([1, 2].map(() => openSocket(service.port, upload)));
  await inFlight(5);
  const aborted = new AbortController();
  const left = fetch(`${service.url}/api/todos/1`, { signal: aborted.signal }).catch(() => undefined);
  await inFlight(6);
  aborted.abort();
  await left;
  for (const socket of sockets) socket.destroy();
  await inFlight(4);
  gate.resolve(undefined);
  expect((await Promise.all(waiting)).map(({ status }) => status)).toEqual([404, 404, 404]);
  await inFlight(0);
});

test("subscribers are counted while they are connected", async () => {
  await using service = startObserved();
  const open = [1, 2, 3].map(() => {
    const leaving = new AbortController();
    const response = fetch(`${service.url}/api/events`, { signal: leaving.signal });
    return { response, leaving };
  });
  for (const { response } of open) expect((await response).status).toBe(200);
  await service.until("todo_event_subscribers", 3);
  // An open stream is a request that has been answered.
  await service.until("todo_http_requests_in_flight", 0);
  for (const [index, { leaving }] of open.entries()) {
    leaving.abort();
    await service.until("todo_event_subscribers", 2 - index);
  }
});

test("a metric shows a blocked event loop", async () => {
  await using service = startObserved();
  const lag = "nodejs_eventloop_lag_max_seconds";
  await until(async () => ((await service.samples()).get(lag) ?? 0) > 0, "the delay is measured");
  Bun.sleepSync(200);
  await until(async () => ((await service.samples()).get(lag) ?? 0) > 0.1, "the metric shows it");
});

test("the metrics port serves only GET /metrics", async () => {
  await using service = startObserved();
  const response = await fetch(`${service.exporter.url}/metrics`);
  expect(response.status).toBe(200);
  expect(response.headers.get("content-type")).toBe("text/plain; version=0.0.4; charset=utf-8");
  for (const path of ["/", "/metrics/", "/api/todos", "/livez", "/admin/"]) {
    expect(await statusAndCode(await fetch(service.exporter.url + path))).toEqual([404, "route_not_found"]);
  }
  const post = await fetch(`${service.exporter.url}/metrics`, { method: "POST" });
  expect([...(await statusAndCode(post)), post.headers.get("allow")]).toEqual([
    405,
    "method_not_allowed",
    "GET, HEAD, OPTIONS",
  ]);
  const rebound = await fetch(`${service.exporter.url}/metrics`, { headers: { Host: "evil.example" } });
  expect(await statusAndCode(rebound)).toEqual([421, "misdirected_host"]);
  expect((await service.send("GET", "/metrics")).status).toBe(404);
});

test("the metrics port off loopback accepts any Host for /metrics, because Prometheus may use any name of the server", async () => {
  const metrics = new Metrics({ version: "1.2.3", runtime: "bun 4.5.6" });
  const exporter = listen(createMetricsService(metrics, false, NOOP_LOG), { host: "127.0.0.1", port: 0 });
  for (const [path, status] of [
    ["/metrics", 200],
    ["/", 421],
  ] as const)
    expect((await fetch(exporter.url + path, { headers: { Host: "metrics.example" } })).status).toBe(status);
  await exporter.abort();
});
