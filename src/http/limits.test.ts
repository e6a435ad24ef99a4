import { expect, test } from "bun:test";
import { callRoute } from "../../test/call-route.ts";
import { as } from "../../test/credentials.ts";
import { hurry } from "../../test/hurry.ts";
import { statusAndCode } from "../../test/problem.ts";
import { openSocket, readToEnd, request, statusOf } from "../../test/raw-http.ts";
import { startService, type TestService } from "../../test/service.ts";
import { storeWith } from "../../test/store.ts";
import { until } from "../../test/until.ts";
import { ServiceError } from "../error.ts";
import { openMemory } from "../storage/memory/store.ts";
import { createService, type ServiceOptions } from "./service.ts";

const CONCURRENT_POSTS = Number(process.env.TODO_TEST_AT_ONCE ?? 200);
const OVERLOAD_DELAY_MS = 20;

function stuckStore() {
  const memory = openMemory();
  let released = Promise.withResolvers<void>();
  let waiting = 0;
  let maxWaiting = 0;
  const store = storeWith(
    {
      insert: async (title) => {
        maxWaiting = Math.max(maxWaiting, ++waiting);
        await released.promise;
        waiting--;
        return memory.insert(title);
      },
    },
    memory,
  );
  return {
    store,
    until: (count: number): Promise<void> => until(() => waiting === count, `${count} inserts wait`),
    maxWaiting: () => maxWaiting,
    /** Releases the inserts that wait; later ones wait again. */
    release: (): void => {
      released.resolve();
      released = Promise.withResolvers();
    },
  };
}

const start = (options: Partial<ServiceOptions>): TestService =>
  startService({ ...options, limits: { overloadDelayMs: OVERLOAD_DELAY_MS, ...options.limits } });

const post = (service: TestService): Promise<Response> =>
  service.sendJson("POST", "/api/todos", { title: "x" });

const OVERLOADED: [status: number, code: string] = [503, "overloaded"];

test("requests in progress above the limit are rejected and logged until one of them gets its response", async () => {
  const stuck = stuckStore();
  await using service = start({ store: stuck.store, limits: { maxRequests: 2 } });
  for (let round = 0; round < 3; round++) {
    const waiting = [post(service), post(service)];
    await stuck.until(2);
    const rejected = await post(service);
    expect(rejected.headers.get("retry-after")).toBe("5");
    expect(await statusAndCode(rejected)).toEqual(OVERLOADED);
    stuck.release();
    expect((await Promise.all(waiting)).map(({ status }) => status)).toEqual([201, 201]);
  }
  service.close();
  const line = { level: "warn", message: "overloaded" } as const;
  expect(service.lines).toEqual([
    { ...line, fields: { route: "/api/todos" } },
    { ...line, fields: { route: "/api/todos", times: 2 } },
  ]);
});

test("requests in progress above the limit are rejected after a delay, so that instant retries do not block other responses", async () => {
  const stuck = stuckStore();
  const limits = { maxRequests: 1, overloadDelayMs: 200 };
  const service = createService({ store: stuck.store, limits });
  const headers = { "Content-Type": "application/json" };
  const send = () => callRoute(service, "/api/todos", { method: "POST", headers, body: '{"title":"x"}' });
  const waiting = send();
  await stuck.until(1);
  using _ = hurry();
  const sent = Date.now();
  expect((await send()).status).toBe(503);
  expect(Date.now() - sent).toBe(200);
  stuck.release();
  expect((await waiting).status).toBe(201);
});

test("requests in progress do not limit other requests: reads, other paths and health checks", async () => {
  const stuck = stuckStore();
  await using service = start({
    store: stuck.store,
    limits: { maxRequests: 1 },
    credentials: { lookupClient: () => ({ name: "client" }) },
  });
  const waiting = post(service);
  await stuck.until(1);
  for (const [line, outcome] of [
    ["GET /livez", "200"],
    ["GET /readyz", "200"],
    ["GET /api/todos", "200"],
    ["HEAD /api/todos", "200"],
    ["OPTIONS /api/todos", "204"],
    ["GET /api/todos/1", "404 todo_not_found"],
    ["DELETE /api/todos/1", "404 todo_not_found"],
    ["GET /api/whoami", "200"],
    ["POST /api/todos", "503 overloaded"],
  ] as const)
    expect([line, await service.outcome(line, as("Bearer x"))]).toEqual([line, outcome]);
  stuck.release();
  expect((await waiting).status).toBe(201);
});

test("requests in progress are no longer counted after they fail", async () => {
  const insert = () => Promise.reject(new ServiceError("store_unavailable"));
  await using service = start({ store: storeWith({ insert }), limits: { maxRequests: 1 } });
  for (let times = 0; times < 3; times++)
    expect(await statusAndCode(await post(service))).toEqual([503, "store_unavailable"]);
});

test("requests in progress are counted before their body arrives, and no longer after their connection closes", async () => {
  await using service = start({ limits: { maxRequests: 1 } });
  const head = request("POST /api/todos", ["Content-Type: application/json", "Content-Length: 99"]);
  const answers = (status: number) =>
    until(async () => (await post(service)).status === status, `a POST is answered with ${status}`);
  for (let round = 0; round < 3; round++) {
    const socket = await openSocket(service.port, head);
    await answers(503);
    socket.destroy();
    await answers(201);
  }
});

test(`requests in progress are accepted up to the limit if ${CONCURRENT_POSTS} writes to a slow store arrive together, and reads get responses`, async () => {
  const max = CONCURRENT_POSTS / 10;
  const stuck = stuckStore();
  await using service = start({ store: stuck.store, limits: { maxRequests: max } });
  let rejected = 0;
  const statuses = Array.from({ length: CONCURRENT_POSTS }, async () => {
    const status = await postRaw(service.port);
    if (status === 503) rejected++;
    return status;
  });
  await stuck.until(max);
  for (let times = 0; times < 10; times++)
    expect((await service.send("GET", "/api/todos?limit=1")).status).toBe(200);
  await until(() => rejected === CONCURRENT_POSTS - max, "all other writes are rejected");
  expect(stuck.maxWaiting()).toBe(max);
  stuck.release();
  const count = (await Promise.all(statuses)).filter((status) => status === 201).length;
  expect(count).toBe(max);
  const last = post(service);
  await stuck.until(1);
  stuck.release();
  expect((await last).status).toBe(201);
});

async function postRaw(port: number): Promise<number | undefined> {
  const body = '{"title":"x"}';
  const headers = ["Content-Type: application/json", `Content-Length: ${body.length}`];
  return statusOf(await readToEnd(await openSocket(port, request("POST /api/todos", headers, body))));
}
