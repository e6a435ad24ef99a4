import { expect, test } from "bun:test";
import { request, sendRaw, startReading, unchunked } from "../../../test/raw-http.ts";
import { pathIn, startService, type TestService } from "../../../test/service.ts";
import { storeOf, storeOfOnly, storeWith } from "../../../test/store.ts";
import { ServiceError } from "../../error.ts";
import { openMemory } from "../../storage/memory/store.ts";
import type { TodoList, TodoStore } from "../../todo.ts";

async function create({ sendJson }: TestService, title: string): Promise<string> {
  const response = await sendJson("POST", "/api/todos", { title });
  expect(response.status).toBe(201);
  return response.text();
}

async function textOf({ send }: TestService, path: string): Promise<string> {
  const response = await send("GET", path);
  expect(response.status).toBe(200);
  return response.text();
}

test.each(["abc", "%201", "%2531", "1%2F", "%00", "%zz", "events", "18446744073709551616"])(
  "/api/todos/:id rejects the id %s for every method",
  async (id) => {
    await using service = startService();
    for (const method of ["GET", "PATCH", "DELETE"])
      expect([method, await service.outcome(`${method} /api/todos/${id}`)]).toEqual([
        method,
        "400 invalid_id",
      ]);
  },
);

test.each(["0", "2", "18446744073709551615", "0002", "%32"])("/api/todos/%s returns a 404", async (id) => {
  await using service = startService();
  await create(service, "x");
  const path = `/api/todos/${id}`;
  for (const outcome of [
    await service.outcome(`GET ${path}`),
    await service.outcome(`DELETE ${path}`),
    await service.outcome(`PATCH ${path}`, {}, { done: true }),
    await service.outcome(`PATCH ${path}`, {}, { done: 1 }),
  ])
    expect(outcome).toBe("404 todo_not_found");
  expect(await textOf(service, "/api/todos")).toBe('[{"id":1,"title":"x","done":false}]');
});

test("/api/todos/:id finds a to-do by its id with zeros, percent-encoded, and with a query", async () => {
  await using service = startService();
  await create(service, "x");
  for (const id of ["1", "01", "0000000000000000000000000001", "%31", "%30%31", "1?x=/y", "1?"])
    expect(await textOf(service, `/api/todos/${id}`)).toBe('{"id":1,"title":"x","done":false}');
});

test.each([
  ...["limit=0", "limit=1001", "limit=1e2", "limit=", "limit=1&limit=1", "%6cimit=0"],
  ...["after=x", "after=18446744073709551616", "limit=1&after=x", "done=", "done=true&done=false"],
])("GET /api/todos rejects ?%s", async (query) => {
  await using service = startService();
  for (const init of [{}, { headers: { "If-None-Match": "*" } }])
    expect(await service.outcome(`GET /api/todos?${query}`, init)).toBe("400 invalid_query");
});

test.each<[ids: number[], queries: readonly string[]]>([
  [
    [1, 3, 4, 6],
    ["", "unknown=1&LIMIT=0", "limit=1000", "after=0"],
  ],
  [[1, 3], ["limit=0002"]],
  [[1], ["%6cimit=%31"]],
  [
    [3, 4, 6],
    ["after=1", "after=2"],
  ],
  [[], ["after=0006", "after=18446744073709551615"]],
  [[3, 6], ["done=true"]],
  [[1, 4], ["done=false"]],
  [[6], ["done=true&after=3"]],
  [[4], ["limit=1&after=1&done=false"]],
])("GET /api/todos returns the to-dos %j of the queries %j", async (ids, queries) => {
  const store = openMemory();
  for (const title of ["a", "b", "c", "d", "e", "f"]) await store.insert(title);
  for (const id of [2n, 5n]) await store.delete(id);
  for (const id of [3n, 6n]) await store.setDone(id, true);
  await using service = startService({ store });
  for (const query of queries) {
    const todos: { id: number }[] = JSON.parse(await textOf(service, `/api/todos?${query}`));
    expect([query, todos.map(({ id }) => id)]).toEqual([query, ids]);
  }
});

test.each([
  ["", "1,3 4,6 7,8"],
  ["&done=true", "3,6 7"],
  ["&done=false", "1,4 8"],
])("GET /api/todos links each page to the next until the list is complete: %p", async (filter, pages) => {
  const store = openMemory();
  for (const title of ["a", "b", "c", "d", "e", "f", "g", "h"]) await store.insert(title);
  for (const id of [2n, 5n]) await store.delete(id);
  for (const id of [3n, 6n, 7n]) await store.setDone(id, true);
  await using service = startService({ store });
  const found: string[] = [];
  for (let path: string | null = `/api/todos?limit=2${filter}`; path !== null; ) {
    const response: Response = await service.send("GET", path);
    const todos: { id: number }[] = JSON.parse(await response.text());
    found.push(todos.map(({ id }) => id).join());
    const link = response.headers.get("link");
    path = link === null ? null : pathIn(/^<([^>]*)>; rel="next"$/.exec(link)?.[1] ?? "", response);
  }
  expect(found.join(" ")).toBe(pages);
});

const etagOf = async ({ send }: TestService, path = "/api/todos") =>
  (await send("GET", path)).headers.get("etag") ?? "";

test("the position of a list is its ETag without the quotes, and that of the write before it", async () => {
  await using service = startService();
  const { send, sendJson } = service;
  const repeated = () =>
    sendJson("POST", "/api/todos", { title: "x" }, { headers: { "Idempotency-Key": "k" } });
  const steps: [what: string, status: number, act: () => Promise<Response>][] = [
    ["a create", 201, repeated],
    ["another create", 201, () => sendJson("POST", "/api/todos", { title: "y" })],
    ["a repeated create", 201, repeated],
    ["an update", 200, () => sendJson("PATCH", "/api/todos/1", { done: true })],
    ["an update to what is", 200, () => sendJson("PATCH", "/api/todos/1", { done: true })],
    ["an update of nothing", 404, () => sendJson("PATCH", "/api/todos/9", { done: true })],
    ["a delete", 204, () => send("DELETE", "/api/todos/1")],
    ["a second delete", 404, () => send("DELETE", "/api/todos/1")],
  ];
  for (const [what, status, act] of steps) {
    const response = await act();
    const { headers } = await send("GET", "/api/todos");
    const position = headers.get("todo-position");
    expect(headers.get("etag")).toBe(`"${position}"`);
    expect([what, response.status, response.headers.get("todo-position")]).toEqual([what, status, position]);
  }
  const others = [await send("GET", "/api/todos/2"), await sendJson("POST", "/api/todos", { title: "" })];
  for (const { headers } of others) expect(headers.get("todo-position")).toBeNull();
});

test.each<[what: string, status: number, ifNoneMatch: (etag: string) => string]>([
  ["the same ETag", 304, (etag) => etag],
  ["an asterisk", 304, () => "*"],
  ["another ETag", 200, () => '"x"'],
])("the position of a list answers If-None-Match: %s", async (_what, status, ifNoneMatch) => {
  await using service = startService();
  await create(service, "x");
  const etag = await etagOf(service);
  for (const method of ["GET", "HEAD"]) {
    const response = await service.send(method, "/api/todos", {
      headers: { "If-None-Match": ifNoneMatch(etag) },
    });
    expect([method, response.status]).toEqual([method, status]);
    expect(response.headers.get("etag")).toBe(etag);
    expect(response.headers.get("todo-position")).toBe(etag.slice(1, -1));
    expect(response.headers.get("cache-control")).toBe("no-cache");
  }
});

/** A store whose operations all throw or reject. */
function failingStore(error: unknown, isLate: boolean): TodoStore {
  const fail = (): never => {
    throw error;
  };
  return storeOfOnly((operation) => (isLate && operation !== "events" ? async () => fail() : fail));
}

const storeOfLists = (json: () => TodoList["json"]): TodoStore =>
  storeWith({ list: () => ({ position: { epoch: "e", sequence: 1 }, json: json() }) });

const json = { "Content-Type": "application/json" };
const requests: [method: string, path: string, init: RequestInit][] = [
  ["GET", "/api/todos", {}],
  ["HEAD", "/api/todos", {}],
  ["GET", "/api/todos?limit=1", {}],
  ["GET", "/api/todos", { headers: { "If-None-Match": "*" } }],
  ["POST", "/api/todos", { headers: json, body: '{"title":"s3cret-title"}' }],
  ["GET", "/api/todos/1", {}],
  ["PATCH", "/api/todos/1", { headers: json, body: '{"done":true}' }],
  ["PATCH", "/api/todos/1", { headers: json, body: '{"done":"bad"}' }],
  ["DELETE", "/api/todos/1", {}],
  ["GET", "/readyz", {}],
  ["GET", "/api/events", {}],
];
const cause = new Error("s3cret: cannot reach 10.1.2.3");
const failures: [what: string, error: unknown, status: number, code: string][] = [
  ["a ServiceError", new ServiceError("store_unavailable", { cause }), 503, "store_unavailable"],
  ["an unexpected error", cause, 500, "internal_error"],
  ["a value that is not an Error", "s3cret", 500, "internal_error"],
  ["undefined", undefined, 500, "internal_error"],
];
test.each(failures)("a store error is logged but not disclosed: %s", async (_what, error, status, code) => {
  for (const [method, path, init] of requests)
    for (const isLate of [false, true]) {
      await using service = startService({ store: failingStore(error, isLate) });
      const response = await service.send(method, path, init);
      expect([method, path, response.status]).toEqual([method, path, status]);
      expect(response.headers.get("retry-after")).toBe(status === 503 ? "5" : null);
      const body = await response.text();
      if (method !== "HEAD") expect(JSON.parse(body)).toMatchObject({ status, code });
      expect(`${body}${[...response.headers]}`).not.toMatch(/s3cret|10\.1\.2\.3|\.ts|at /);
      expect(service.lines).toMatchObject([{ level: "error", fields: { method, code } }]);
      expect(service.logText()).not.toContain("s3cret-title");
    }
});

test("a service whose store fails aborts a response if it throws in the middle of a list", async () => {
  const store = storeOfLists(async function* () {
    yield Buffer.from("[");
    throw new Error("s3cret");
  });
  await using service = startService({ store });
  const { text, closed } = await sendRaw(service.port, request("GET /api/todos"));
  expect(closed).toBe(true);
  expect(() => unchunked(text)).toThrow("cut off");
  for (const _ of [1, 2]) await sendRaw(service.port, request("GET /api/todos"));
  service.close();
  const line = { level: "error", message: "list response aborted" } as const;
  expect(service.lines).toMatchObject([
    { ...line, fields: { err: new Error("s3cret") } },
    { ...line, fields: { err: new Error("s3cret"), times: 2 } },
  ]);
  expect(text).not.toContain("s3cret");
  expect((await service.send("GET", "/livez")).status).toBe(200);
});

test("a long list uses little memory while its client reads slowly", async () => {
  await using service = startService({ store: await storeOf(80_000) });
  Bun.gc(true);
  const before = process.memoryUsage.rss();
  const readers = await Promise.all(Array.from({ length: 4 }, () => startReading(service.port)));
  for (let look = 0; look < 50; look++) {
    expect(await service.outcome("GET /livez")).toBe("200");
    expect((process.memoryUsage.rss() - before) / 2 ** 20).toBeLessThan(16);
  }
  for (const socket of readers) socket.destroy();
});

test("a long list is produced only as its client reads, and ends when the client disconnects", async () => {
  const piece = Buffer.alloc(65_536, " ");
  let made = 0;
  const givenUp = Promise.withResolvers<void>();
  await using service = startService({
    store: storeOfLists(function* () {
      try {
        // Without a pause of the client, the list would not fit into any memory.
        for (; made < 8192; made++) yield piece;
      } finally {
        givenUp.resolve();
      }
    }),
  });
  const socket = await startReading(service.port);
  // The service also answers others meanwhile.
  for (let turn = 0; turn < 50; turn++) expect(await service.outcome("GET /livez")).toBe("200");
  expect((made * piece.length) / 2 ** 20).toBeLessThan(32);
  socket.destroy();
  await givenUp.promise;
});

test("a long list is complete for other clients after one has disconnected", async () => {
  await using service = startService({ store: await storeOf(10_000) });
  for (let reader = 0; reader < 20; reader++) (await startReading(service.port)).destroy();
  await service.sendJson("PATCH", "/api/todos/5000", { done: true });
  const todos: { id: number; done: boolean }[] = JSON.parse(await textOf(service, "/api/todos"));
  expect(todos.map(({ id }) => id)).toEqual(Array.from({ length: 10_000 }, (_, index) => index + 1));
  expect(todos.filter(({ done }) => done).map(({ id }) => id)).toEqual([5000]);
  expect(service.lines).toEqual([]);
});
