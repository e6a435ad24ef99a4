import { heapStats } from "bun:jsc";
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { connect, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import contract from "../../openapi.json" with { type: "json" };
import { runTodo } from "../../test/command.ts";
import { capturingLog } from "../../test/log.ts";
import { request, unchunked } from "../../test/message.ts";
import { mismatch } from "../../test/openapi.ts";
import { type Databases, openDatabases, whyNoDatabase } from "../../test/postgres.ts";
import { emptyStores } from "../../test/postgres-store.ts";
import { verdict } from "../../test/problem.ts";
import { sendRaw } from "../../test/raw.ts";
import { startService } from "../../test/service.ts";
import { type EventStream, type FollowOptions, follow, type SseEvent, SseParser } from "../../test/sse.ts";
import { storeWith, watch } from "../../test/store.ts";
import { Feed } from "../event.ts";
import { Failure } from "../failure.ts";
import { openMemory } from "../storage/memory.ts";
import { openSqlite } from "../storage/sqlite/engine.ts";
import type { Store, StoreOptions } from "../storage/store.ts";
import { formatPosition, type TodoEvent, type TodoStore } from "../todo.ts";
import { listen } from "./listen.ts";
import { createService, type ServiceOptions } from "./service.ts";

const LONGEST_TITLE = "😀".repeat(120);

const folder = mkdtempSync(join(tmpdir(), "todo-events-"));
afterAll(() => rmSync(folder, { recursive: true }));
let files = 0;
const newPath = (): string => join(folder, `${++files}.db`);

type OpenStore = (options?: StoreOptions) => Promise<Store>;

let databases: Databases;
beforeAll(async () => {
  if (whyNoDatabase === undefined) databases = await openDatabases({ fsync: "off" });
}, 30_000);
afterAll(async () => {
  if (whyNoDatabase === undefined) await databases[Symbol.asyncDispose]();
}, 30_000);

const ENGINES: [engine: string, openStore: OpenStore][] = [
  ["memory", async (options) => openMemory(options)],
  ["sqlite", (options) => openSqlite(newPath(), options)],
];
if (whyNoDatabase === undefined) ENGINES.push(["postgres", emptyStores(() => databases)]);

/** A service on a store that it closes at the end. */
function serve<S extends TodoStore>(store: S, options: Partial<ServiceOptions> = {}) {
  const service = startService({ store, ...options });
  return {
    ...service,
    store,
    follow: (from?: FollowOptions) => follow(service.url, from),
    [Symbol.asyncDispose]: async () => {
      await service[Symbol.asyncDispose]();
      await store.close();
    },
  };
}

type Served = ReturnType<typeof serve<TodoStore>>;

const here = async (store: TodoStore): Promise<string> => formatPosition(await store.position());

const nOf = (id: string): number => Number(id.replace(/^.*-/, ""));

/** Throws unless the events are exactly those of the positions from `first` to `last`. */
function expectAll(events: readonly SseEvent[], first: number, last: number): void {
  expect(events.map(({ id }) => nOf(id))).toEqual(
    Array.from({ length: last - first + 1 }, (_, index) => first + index),
  );
}

/** Writers that create, change and delete at once, over HTTP, until each has done so many. */
async function write({ sendJson, send }: Served, writers: number, each: number): Promise<void> {
  const writer = async (seed: number): Promise<void> => {
    for (let turn = 0; turn < each; turn++) {
      const id = 1 + ((seed * 31 + turn * 17) % (1 + writers * turn));
      if (turn % 3 === 0) await sendJson("POST", "/api/todos", { title: `${seed}: ${turn}` });
      else if (turn % 3 === 1) await sendJson("PATCH", `/api/todos/${id}`, { done: turn % 2 === 0 });
      else await send("DELETE", `/api/todos/${id}`);
    }
  };
  await Promise.all(Array.from({ length: writers }, (_, seed) => writer(seed)));
}

/** What the events make of a list; throws where one does not fit. */
function applied(list: string, events: readonly SseEvent[]): string {
  const todos = new Map<number, string>();
  for (const [json, id] of list.matchAll(/\{"id":(\d+),.*?"done":(?:true|false)\}/g))
    todos.set(Number(id), json);
  for (const { type, data } of events) {
    const id = Number(/^\{"id":(\d+)/.exec(data)?.[1]);
    expect([type, todos.has(id)]).toEqual([type, type !== "created"]);
    if (type === "deleted") todos.delete(id);
    else todos.set(id, data);
  }
  return `[${[...todos.values()].join(",")}]`;
}

/** What comes of a stream that is quiet for some time: begun before all tests, for it takes long, and awaited by the last. */
const quiet = (async () => {
  await using service = serve(openMemory(), { heartbeatMs: 60_000 });
  await using events = await service.follow({ patienceMs: 20_000 });
  const taken = events.take(2);
  await sleep(13_500);
  const comments = events.comments();
  await service.store.insert("x");
  return { comments, types: (await taken).map(({ type }) => type) };
})();
quiet.catch(() => {});

describe.each(ENGINES)("GET /api/events on %s", (_engine, openStore) => {
  test("tells each change, with its position as its id", async () => {
    await using service = serve(await openStore());
    const { epoch, n } = await service.store.position();
    await using events = await service.follow();
    await service.sendJson("POST", "/api/todos", { title: "Zoë 😀" });
    await service.sendJson("PATCH", "/api/todos/1", { done: true });
    await service.sendJson("PATCH", "/api/todos/1", { done: true });
    await service.sendJson("POST", "/api/todos", { title: "" });
    await service.sendJson("PATCH", "/api/todos/1", { done: false });
    await service.send("DELETE", "/api/todos/1");
    await service.send("DELETE", "/api/todos/1");
    await service.sendJson("POST", "/api/todos", { title: "b" });
    expect(await events.take(6)).toEqual([
      { id: `${epoch}-${n}`, type: "position", data: "{}" },
      { id: `${epoch}-${n + 1}`, type: "created", data: '{"id":1,"title":"Zoë 😀","done":false}' },
      { id: `${epoch}-${n + 2}`, type: "updated", data: '{"id":1,"title":"Zoë 😀","done":true}' },
      { id: `${epoch}-${n + 3}`, type: "updated", data: '{"id":1,"title":"Zoë 😀","done":false}' },
      { id: `${epoch}-${n + 4}`, type: "deleted", data: '{"id":1}' },
      { id: `${epoch}-${n + 5}`, type: "created", data: '{"id":2,"title":"b","done":false}' },
    ]);
  });

  // Of a store with the changes 1 to 5, of which 3 to 5 are kept; HERE stands for its epoch.
  const starts: [what: string, from: FollowOptions, first: string, then: number[]][] = [
    ["nothing", {}, "position HERE-5", []],
    ["since the present", { since: "HERE-5" }, "", []],
    ["since the last change but one", { since: "HERE-4" }, "", [5]],
    ["since as far back as is kept", { since: "HERE-2" }, "", [3, 4, 5]],
    ["since, with zeros", { since: "HERE-00003" }, "", [4, 5]],
    ["since what is not kept", { since: "HERE-1" }, "resync HERE-5", []],
    ["since the very beginning", { since: "HERE-0" }, "resync HERE-5", []],
    ["since the future", { since: "HERE-6" }, "resync HERE-5", []],
    ["since a future past all doubles", { since: `HERE-${"9".repeat(400)}` }, "resync HERE-5", []],
    ["since another epoch", { since: "9f86d081-5" }, "resync HERE-5", []],
    ["since an epoch with a hyphen", { since: "HERE--5" }, "resync HERE-5", []],
    ["a last id", { lastEventId: "HERE-3" }, "", [4, 5]],
    ["a last id that is not kept", { lastEventId: "HERE-1" }, "resync HERE-5", []],
    ["a last id in the future", { lastEventId: "HERE-6" }, "resync HERE-5", []],
    ["a last id of another epoch", { lastEventId: "9f86d081-3" }, "resync HERE-5", []],
    ["a malformed last id", { lastEventId: "HERE" }, "resync HERE-5", []],
    ["a last id in quotes", { lastEventId: '"HERE-3"' }, "resync HERE-5", []],
    ["a last id with a fraction", { lastEventId: "HERE-3.5" }, "resync HERE-5", []],
    ["two last ids", { lastEventId: "HERE-3, HERE-4" }, "resync HERE-5", []],
    ["a last id of no ASCII", { lastEventId: "é-3" }, "resync HERE-5", []],
    ["an empty last id", { lastEventId: "" }, "position HERE-5", []],
    ["an empty last id and since", { lastEventId: "", since: "HERE-4" }, "", [5]],
    ["a last id and an older since", { lastEventId: "HERE-4", since: "HERE-2" }, "", [5]],
    ["a last id and a lost since", { lastEventId: "HERE-3", since: "HERE-0" }, "", [4, 5]],
    ["a lost last id and a since", { lastEventId: "HERE-0", since: "HERE-4" }, "resync HERE-5", []],
  ];

  test.each(starts)("asked for with %s, starts there and goes on", async (_what, from, first, then) => {
    await using service = serve(await openStore({ maxEvents: 3 }));
    for (let n = 1; n <= 5; n++) await service.store.insert(`${n}`);
    const { epoch } = await service.store.position();
    const asked = Object.fromEntries(
      Object.entries(from).map(([name, text]) => [name, text.replaceAll("HERE", epoch)]),
    );
    const expected = [
      ...(first === "" ? [] : [first.replace("HERE", epoch)]),
      ...[...then, 6, 7].map((n) => `created ${epoch}-${n}`),
    ];
    await using events = await service.follow(asked);
    const told = first === "" ? [] : await events.take(1);
    for (const title of ["6", "7"]) await service.store.insert(title);
    told.push(...(await events.take(expected.length - told.length)));
    expect(told.map(({ type, id }) => `${type} ${id}`)).toEqual(expected);
  });

  test.each(
    [
      "since=",
      "since",
      "since=1",
      "since=-1",
      "since=HERE",
      "since=HERE-",
      "since=HERE-x",
      "since=HERE-1.5",
      "since=HERE-1e1",
      "since=HERE-%D9%A1",
      "since=%22HERE-1%22",
      "since=W/%22HERE-1%22",
      "since=HERE+-1",
      "since=HERE-1%20",
      "since=HERE-1%0A",
      "since=HERE-1,HERE-2",
      "since=%00-1",
      "since=HERE-1&since=HERE-1",
      "since=HERE-1&since=",
      "%73ince=x",
    ].map((query) => [query]),
  )("refuses ?%s", async (query) => {
    await using service = serve(await openStore());
    await service.store.insert("x");
    const path = `/api/events?${query.replaceAll("HERE", (await service.store.position()).epoch)}`;
    expect(await verdict(await service.send("GET", path))).toEqual([400, "invalid_query"]);
    expect((await service.send("HEAD", path)).status).toBe(400);
    const resumed = await service.send("GET", path, {
      headers: { "Last-Event-ID": await here(service.store) },
    });
    expect(resumed.status).toBe(400);
  });

  test("tells all readers all changes, in order, once, whoever writes at the same time", async () => {
    await using service = serve(await openStore());
    const { n } = await service.store.position();
    await using one = await service.follow();
    await using other = await service.follow({ since: await here(service.store) });
    await write(service, 8, 40);
    const last = (await service.store.position()).n;
    expect(last - n).toBeGreaterThan(150);
    const [[position, ...told], toldOther] = await Promise.all([
      one.take(last - n + 1),
      other.take(last - n),
    ]);
    expect(position?.type).toBe("position");
    expect(told).toEqual(toldOther);
    expectAll(told, n + 1, last);
    for (const { type, data } of told) {
      const schema = type === "deleted" ? DELETED : { $ref: "#/components/schemas/Todo" };
      expect(mismatch(schema, JSON.parse(data))).toBeUndefined();
    }
    expect(applied("[]", told)).toBe(await (await service.send("GET", "/api/todos")).text());
  });

  test("misses nothing and repeats nothing for one that connects again and again", async () => {
    await using service = serve(await openStore());
    const { n } = await service.store.position();
    let lastEventId = "";
    const told: SseEvent[] = [];
    const takeSome = async (count: number): Promise<void> => {
      // As an EventSource: always to the same URL.
      await using events = await service.follow({
        lastEventId,
        since: `${(await service.store.position()).epoch}-${n}`,
      });
      told.push(...(await events.take(count)));
      lastEventId = events.lastId();
    };
    const writing = write(service, 4, 60);
    for (let turn = 0; turn < 15; turn++) await takeSome(1 + (turn % 4));
    await writing;
    const last = (await service.store.position()).n;
    await takeSome(last - nOf(lastEventId));
    expectAll(told, n + 1, last);
  });

  test("begins where it says, also for one that connects again before anything has come", async () => {
    await using service = serve(await openStore());
    await service.store.insert("before");
    const first = await service.follow();
    await first.take(1);
    await first.close();
    await service.store.insert("between");
    await using second = await service.follow({ lastEventId: first.lastId() });
    expect((await second.take(1))[0]?.data).toContain("between");
  });

  test("makes a list, with the changes since its ETag, the list as it is at the end", async () => {
    let amid = 0;
    for (let round = 0; round < 8; round++) {
      await using service = serve(await openStore());
      const looks: { list: string; n: number; events: EventStream }[] = [];
      let writing = true;
      const look = async (): Promise<void> => {
        // A process has no more than 256 fetches open.
        while (writing && looks.length < 100) {
          const response = await service.send("GET", "/api/todos");
          const since = response.headers.get("etag")?.slice(1, -1) ?? "";
          const events = await service.follow({ since });
          looks.push({ list: await response.text(), n: nOf(since), events });
        }
      };
      const written = write(service, 4, 150).finally(() => {
        writing = false;
      });
      await Promise.all([written, ...Array.from({ length: 8 }, look)]);
      const last = (await service.store.position()).n;
      const final = await (await service.send("GET", "/api/todos")).text();
      amid += looks.filter(({ n }) => n > 0 && n < last).length;
      for (const { list, n, events } of looks) {
        const told = await events.take(last - n);
        expectAll(told, n + 1, last);
        expect(applied(list, told)).toBe(final);
        await events.close();
      }
    }
    expect(amid).toBeGreaterThan(10);
  }, 30_000);

  test.each([
    "line\nbreak",
    "carriage\rreturn",
    "\r\n\r\nevent: deleted\r\ndata: {}\r\n\r\n",
    "\n\nid: forged-1\n\n",
    "line separator \u2028 and \u2029",
    "next line \u0085",
    "NUL \0 in the middle",
    "\uFEFFbyte order mark",
    ": comment",
    "data: x",
    '"quotes" and \\backslashes\\',
    LONGEST_TITLE,
    "\u0001".repeat(120),
  ])("keeps the title %j in its one line", async (title) => {
    await using service = serve(await openStore());
    await using events = await service.follow();
    const created = await service.sendJson("POST", "/api/todos", { title });
    const patched = await service.sendJson("PATCH", "/api/todos/1", { done: true });
    const [, first, second] = await events.take(3);
    expect([first?.type, first?.data]).toEqual(["created", await created.text()]);
    expect([second?.type, second?.data]).toEqual(["updated", await patched.text()]);
    expect(JSON.parse(second?.data ?? "")).toEqual({ id: 1, title, done: true });
  });

  test("tells what was missed however much it is", async () => {
    await using service = serve(await openStore());
    const since = await here(service.store);
    await Promise.all(Array.from({ length: 10_000 }, () => service.store.insert(LONGEST_TITLE)));
    await using events = await service.follow({ since });
    expectAll(await events.take(10_000), 1, 10_000);
    await service.store.delete(1n);
    expect((await events.take(1))[0]?.type).toBe("deleted");
  });

  test("ends for one that falls behind, who is told so when it comes again", async () => {
    await using service = serve(await openStore({ maxEvents: 500 }));
    const { store } = service;
    const stalled = await startReading(service.port, await here(store));
    await using reader = await service.follow();
    await reader.take(1);
    for (let n = 0; n < 12_000; n += 200) {
      await Promise.all(Array.from({ length: 200 }, () => store.insert(LONGEST_TITLE)));
      expectAll(await reader.take(200), n + 1, n + 200);
    }

    const told = await readOn(stalled);
    expect(told.length).toBeGreaterThan(100);
    expectAll(told, 1, told.length);
    expect(told.length).toBeLessThan(11_500);
    await using again = await service.follow({ lastEventId: told.at(-1)?.id ?? "" });
    const [resync] = await again.take(1);
    await store.delete(12_000n);
    expect([resync, ...(await again.take(1))].map((event) => [event?.type, nOf(event?.id ?? "")])).toEqual([
      ["resync", 12_000],
      ["deleted", 12_001],
    ]);
  }, 15_000);
});

describe("a store that is opened again", () => {
  test("on a file, tells what was missed meanwhile", async () => {
    const path = newPath();
    let lastEventId: string;
    {
      await using service = serve(await openSqlite(path));
      await using events = await service.follow();
      await service.store.insert("a");
      await events.take(2);
      lastEventId = events.lastId();
      await service.store.insert("b");
    }
    await using service = serve(await openSqlite(path));
    await using events = await service.follow({ lastEventId });
    await service.store.insert("c");
    expect((await events.take(2)).map(({ data }) => JSON.parse(data).title)).toEqual(["b", "c"]);
  });

  test("in memory, says that what was missed is lost", async () => {
    let lastEventId: string;
    {
      await using service = serve(openMemory());
      await service.store.insert("a");
      lastEventId = await here(service.store);
    }
    await using service = serve(openMemory());
    await service.store.insert("b");
    await using events = await service.follow({ lastEventId });
    expect(await events.take(1)).toEqual([{ id: await here(service.store), type: "resync", data: "{}" }]);
    await service.store.insert("c");
    expect(JSON.parse((await events.take(1))[0]?.data ?? "").title).toBe("c");
  });
});

describe("a stream of events", () => {
  test("says how it is to be treated", async () => {
    await using service = serve(openMemory(), { corsOrigins: ["https://listed.example"] });
    for (const [origin, shared] of [
      ["https://listed.example", "https://listed.example"],
      ["https://other.example", null],
    ] as const) {
      const { status, headers, body } = await service.send("GET", "/api/events", {
        headers: { Origin: origin },
      });
      await body?.cancel();
      expect([
        status,
        ...["content-type", "cache-control", "x-accel-buffering", "x-content-type-options", "vary"].map(
          (name) => headers.get(name),
        ),
        headers.get("access-control-allow-origin"),
      ]).toEqual([200, "text/event-stream", "no-store, no-transform", "no", "nosniff", "Origin", shared]);
    }
  });

  test("keeps every digit of an id", async () => {
    await using service = serve(openMemory({ lastId: 2n ** 53n }));
    await using events = await service.follow();
    await service.store.insert("x");
    await service.store.delete(2n ** 53n + 1n);
    expect((await events.take(3)).map(({ data }) => data)).toEqual([
      "{}",
      '{"id":9007199254740993,"title":"x","done":false}',
      '{"id":9007199254740993}',
    ]);
  });

  test("sends in one piece what comes together", async () => {
    await using service = serve(openMemory());
    const answer = sendRaw(service.port, request("GET /api/events"));
    await sleep(50);
    for (let n = 1; n <= 100; n++) {
      await service.store.insert(`${n}`);
      if (n % 25 === 0) await new Promise(setImmediate);
    }
    const { text } = await answer;
    expect(text.match(/\r\n[0-9a-f]+\r\nid: /g)).toHaveLength(2);
    expect(text.match(/^event: created$/gm)).toHaveLength(100);
  });

  test("has a heart that beats", async () => {
    await using service = serve(openMemory(), { heartbeatMs: 20 });
    await using events = await service.follow();
    const started = performance.now();
    const taken = events.take(2);
    await sleep(300);
    await service.store.insert("x");
    expect((await taken).map(({ type }) => type)).toEqual(["position", "created"]);
    expect(events.comments()).toBeGreaterThan(5);
    expect(events.comments()).toBeLessThanOrEqual(1 + (performance.now() - started) / 20);
  });

  test.each<[what: string, resumes: boolean, changes: number]>([
    ["a new one, while nothing happens", false, 0],
    ["a new one, after a change", false, 1],
    ["a resumed one, while nothing happens", true, 0],
    ["a resumed one, after a change", true, 1],
  ])("is given up when its reader goes away: %s", async (_what, resumes, changes) => {
    const watched = await watchedStore();
    await using service = serve(watched.store);
    const events = await service.follow(resumes ? { since: watched.start } : {});
    for (let n = 0; n < changes; n++) await service.store.insert("x");
    await events.take(changes);
    expect(watched.open()).toBe(1);
    await events.close();
    await until(() => watched.open() === 0, "its stream is given up");
    await sleep(10);
    expect(watched.positionsAsked()).toBe(1);
  });

  test("leaves nothing behind when its reader goes away", async () => {
    const watched = await watchedStore();
    await using service = serve(watched.store);
    const comeAndGo = async (times: number): Promise<void> => {
      for (let time = 0; time < times; time += 50) {
        const readers = Array.from({ length: 50 }, () => startReading(service.port, watched.start));
        for (const socket of await Promise.all(readers)) socket.destroy();
        await until(() => watched.open() === 0, "streams are given up");
      }
      // What is over is let go a little later.
      await sleep(50);
    };
    const objects = (): number => {
      Bun.gc(true);
      return heapStats().objectCount;
    };
    await comeAndGo(200);
    const before = objects();
    await comeAndGo(500);
    expect(objects() - before).toBeLessThan(500);
  }, 10_000);

  test("is given up when its reader goes away without what is there", async () => {
    const watched = await watchedStore();
    await using service = serve(watched.store);
    await Promise.all(Array.from({ length: 10_000 }, () => watched.store.insert(LONGEST_TITLE)));
    const stalled = await startReading(service.port, watched.start);
    await sleep(200);
    expect(watched.open()).toBe(1);
    stalled.destroy();
    await until(() => watched.open() === 0, "its stream is given up");
  });

  test("is given up at once for HEAD", async () => {
    const watched = await watchedStore();
    await using service = serve(watched.store);
    const response = await service.send("HEAD", "/api/events");
    expect([response.status, response.headers.get("content-type")]).toEqual([200, "text/event-stream"]);
    await until(() => watched.open() === 0, "its stream is given up");
  });

  test.each([
    ["cannot answer", new Failure("store_unavailable"), 503, "store_unavailable"],
    ["breaks", new Error("s3cret"), 500, "internal_error"],
  ])("is refused by a store that %s", async (_what, error, status, code) => {
    const { log, lines } = capturingLog();
    await using service = serve(storeWith({ position: () => Promise.reject(error) }), { log });
    const response = await service.send("GET", "/api/events");
    expect(await verdict(response)).toEqual([status, code]);
    expect(lines).toMatchObject([{ level: "error", fields: { route: "/api/events", code } }]);
  });

  test.each<[what: string, from: FollowOptions, answers: Partial<TodoStore>, types: string[]]>([
    ["at once", {}, { events: fail }, ["position"]],
    ["after a change", {}, { events: failAfterOne }, ["position", "deleted"]],
    ["when asked for what was missed", { since: "e-1" }, { events: failAfterOne }, ["deleted"]],
    ["when what was missed is lost", { since: "e-1" }, failsAtSecond(), []],
  ])("ends, and the log says why, when its store fails %s", async (_what, from, answers, types) => {
    const { log, lines } = capturingLog();
    await using service = serve(storeWith(answers), { log });
    await using events = await service.follow(from);
    expect((await events.rest()).map(({ type }) => type)).toEqual(types);
    expect(lines).toMatchObject([{ level: "error", message: "events cut off", fields: { err: BROKEN } }]);
    expect((await service.send("GET", "/livez")).status).toBe(200);
  });

  test.each<[from: FollowOptions, told: string[]]>([
    [{}, ["position e-1", "deleted e-2"]],
    [{ since: "other-1" }, ["resync e-2", "deleted e-3"]],
  ])("goes on from the very position that it tells: %j", async (from, told) => {
    let n = 0;
    const store = storeWith({
      position: async () => ({ epoch: "e", n: ++n }),
      events: async function* (after) {
        if (after.epoch === "e") yield { type: "deleted", position: { epoch: "e", n: after.n + 1 }, id: 1n };
      },
    });
    await using service = serve(store);
    await using events = await service.follow(from);
    expect((await events.rest()).map(({ type, id }) => `${type} ${id}`)).toEqual(told);
  });

  test("ends when the store's own feed does, and calls for a new list where nothing had come", async () => {
    const feed = new Feed(10, 0);
    const position = { epoch: "e", n: 0 };
    const store = storeWith({ position: () => position, events: ({ n }, signal) => feed.after(n, signal) });
    await using service = serve(store);
    await using live = await service.follow();
    await using resumed = await service.follow({ since: "e-0" });
    feed.end();
    expect((await live.rest()).map(({ type }) => type)).toEqual(["position"]);
    expect((await resumed.rest()).map(({ type }) => type)).toEqual(["resync"]);
  });
});

const BROKEN = new Error("s3cret");

function fail(): never {
  throw BROKEN;
}

async function* failAfterOne(): AsyncGenerator<TodoEvent> {
  yield { type: "deleted", position: { epoch: "e", n: 2 }, id: 1n };
  fail();
}

/** Answers with a position once, and then no more. */
function failsAtSecond(): Partial<TodoStore> {
  let asked = 0;
  return { position: async () => (++asked === 1 ? { epoch: "f", n: 1 } : fail()) };
}

/** A memory store that is watched. */
async function watchedStore() {
  const memory = openMemory();
  return { ...watch(memory), start: await here(memory) };
}

const STALLED = 50;
const TODOS = 500;

describe("a reader that does not read", () => {
  test.each(ENGINES)(
    "costs little on %s, is let go, and the others miss nothing",
    async (_engine, openStore) => {
      const opened = await openStore();
      const watched = watch(opened);
      await using service = serve(watched.store);
      await Promise.all(Array.from({ length: TODOS }, () => opened.insert(LONGEST_TITLE)));
      const ids = Array.from({ length: TODOS }, (_, index) => BigInt(index + 1));
      let last = (await opened.position()).n;
      await using healthy = await service.follow({ since: await here(opened) });
      /** Changes all to-dos some times, and sees the healthy reader told of it. */
      const change = async (times: number): Promise<void> => {
        for (let turn = 0; turn < times; turn++) {
          await Promise.all(ids.map((id) => opened.setDone(id, turn % 2 === 0)));
          expectAll(await healthy.take(TODOS), last + 1, last + TODOS);
          last += TODOS;
        }
      };
      const held = (): number => {
        Bun.gc(true);
        return process.memoryUsage.rss() / 2 ** 20;
      };
      await change(20);
      const before = held();
      const from = await here(opened);
      const stalled = await Promise.all(
        Array.from({ length: STALLED }, () => startReading(service.port, from)),
      );
      const behind = last;
      await change(100);
      // In MiB; each of them leaves 25 unread, 1,250 together. What a collector holds back varies.
      expect(held() - before).toBeLessThan(300);
      expect(watched.open()).toBe(STALLED + 1);
      for (const told of await Promise.all(stalled.map((socket) => readOn(socket)))) {
        expectAll(told, behind + 1, behind + told.length);
        expect(behind + told.length).toBeLessThan(last);
      }
      await until(() => watched.open() === 1, "those who stalled are let go");
      await change(1);
    },
    60_000,
  );

  test("is sent no heartbeats that it does not take", async () => {
    await using service = serve(openMemory({ maxEvents: 500 }), { heartbeatMs: 5 });
    const stalled = await startReading(service.port, await here(service.store));
    for (let n = 0; n < 20_000; n += 200) {
      await Promise.all(Array.from({ length: 200 }, () => service.store.insert(LONGEST_TITLE)));
      await sleep(5);
    }
    await sleep(2000);
    const parser = new SseParser();
    expect((await readOn(stalled, parser)).length).toBeGreaterThan(1000);
    expect(parser.comments).toBeLessThan(200);
  }, 15_000);

  test("holds up no stop for long, and the others see the end of their streams", async () => {
    await using service = stoppable();
    await service.store.insert("x");
    const since = await here(service.store);
    const stalled = await startReading(service.port, since);
    for (let n = 0; n < 100; n++) {
      await Promise.all(Array.from({ length: 100 }, () => service.store.insert(LONGEST_TITLE)));
      await sleep(1);
    }
    await using live = await follow(service.url);
    await using resumed = await follow(service.url, { since });
    expectAll(await resumed.take(10_000), 2, 10_001);
    const started = performance.now();
    const stopped = service.stop();
    expect((await live.rest()).map(({ type }) => type)).toEqual(["position"]);
    expect(await resumed.rest()).toEqual([]);
    expect(performance.now() - started).toBeLessThan(500);
    await stopped;
    expect(performance.now() - started).toBeLessThan(6000);
    stalled.destroy();
  }, 10_000);
});

/** A service whose stop a test has in its own hands. */
function stoppable() {
  const store = openMemory();
  const service = createService({ store });
  const listener = listen(service, { host: "127.0.0.1", port: 0 });
  const port = Number(new URL(listener.url).port);
  return { ...service, ...listener, store, port, [Symbol.asyncDispose]: () => listener.abort() };
}

describe("a service that stops", () => {
  test("ends the streams that are open, and those asked for later, as they should end", async () => {
    await using service = stoppable();
    await service.store.insert("x");
    const since = await here(service.store);
    const readers = await Promise.all(
      [{}, { since }, { since: "other-1" }].map((from) => follow(service.url, from)),
    );
    await sleep(50);
    service.drain();
    const types = await Promise.all(
      readers.map(async (reader) => (await reader.rest()).map(({ type }) => type)),
    );
    expect(types).toEqual([["position"], [], ["resync"]]);

    await service.store.insert("y");
    await using late = await follow(service.url, { lastEventId: since });
    expect(late.response.headers.get("connection")).toBe("close");
    expect(await late.rest()).toEqual([]);
  });

  test("exits with 0 at once, whoever follows it", async () => {
    await using server = runTodo(["serve", "--port", "0", "--store", `sqlite:${newPath()}`]);
    const url = await server.url;
    const readers = await Promise.all(Array.from({ length: 20 }, () => follow(url)));
    const rests = Promise.all(readers.map((reader) => reader.rest()));
    await fetch(`${url}/api/todos`, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: '{"title":"x"}',
    });
    const started = performance.now();
    server.kill("SIGTERM");
    expect(await server.exited).toBe(0);
    expect(performance.now() - started).toBeLessThan(2000);
    for (const rest of await rests) expect(rest.map(({ type }) => type)).toEqual(["position", "created"]);
    expect(server.stderr()).not.toContain("warn");
  });
});

test("a stream of events stays open for longer than any other connection may be quiet", async () => {
  expect(await quiet).toEqual({ comments: 0, types: ["position", "created"] });
}, 20_000);

const DELETED = {
  type: "object",
  required: ["id"],
  properties: { id: contract.components.schemas.Todo.properties.id },
  additionalProperties: false,
};

const PATIENCE_MS = 4500;

/** Waits for something; throws when it does not come in time. */
async function until(isSo: () => boolean, what: string): Promise<void> {
  const deadline = performance.now() + PATIENCE_MS;
  while (!isSo()) {
    if (performance.now() > deadline) throw new Error(`waited ${PATIENCE_MS} ms until ${what}`);
    await sleep(1);
  }
}

/** Asks for the events since a position, and stops reading at the first bytes. */
async function startReading(port: number, since: string): Promise<Socket> {
  const socket = connect(port, "127.0.0.1");
  socket.on("error", () => {});
  socket.write(request(`GET /api/events?since=${since}`));
  const [first] = await once(socket, "data", { signal: AbortSignal.timeout(PATIENCE_MS) });
  socket.pause();
  socket.unshift(first);
  return socket;
}

/** Reads on to the end; throws when the stream is cut off, or nothing comes for long. */
async function readOn(socket: Socket, parser = new SseParser()): Promise<SseEvent[]> {
  socket.setTimeout(PATIENCE_MS, () =>
    socket.destroy(new Error(`waited ${PATIENCE_MS} ms for the end of a stream`)),
  );
  const chunks: Buffer[] = await Array.fromAsync(socket);
  const events = parser.take(Buffer.from(unchunked(Buffer.concat(chunks).toString("latin1")), "latin1"));
  parser.end();
  return events;
}
