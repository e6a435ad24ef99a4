import { heapStats } from "bun:jsc";
import { expect, test } from "bun:test";
import contract from "../../../openapi.json" with { type: "json" };
import { expectAll, here, nOf, readOn, serve } from "../../../test/event-streams.ts";
import { mismatch } from "../../../test/openapi.ts";
import { LONGEST_TITLE, openSocket, request, startReading } from "../../../test/raw-http.ts";
import { type EventStream, type FollowOptions, type SseEvent, SseParser } from "../../../test/sse.ts";
import { storeWith, watch } from "../../../test/store.ts";
import { until } from "../../../test/until.ts";
import { ChangeFeed } from "../../storage/change-feed.ts";
import { openMemory } from "../../storage/memory/store.ts";
import { formatPosition, type TodoEvent, type TodoStore } from "../../todo.ts";

type Served = ReturnType<typeof serve<TodoStore>>;

/** Concurrent writers that create, change and delete over HTTP, each this number of times. */
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

/** Applies events to a list; throws if one does not match. */
function applied(list: string, events: readonly SseEvent[]): string {
  const todos = new Map<number, string>();
  for (const [json, id] of list.matchAll(/\{"id":(\d+),.*?"done":(?:true|false)\}/g))
    todos.set(Number(id), json);
  for (const { type, data } of events) {
    expect(mismatch(type === "deleted" ? DELETED : TODO, JSON.parse(data))).toBeUndefined();
    const id = Number(/^\{"id":(\d+)/.exec(data)?.[1]);
    expect([type, todos.has(id)]).toEqual([type, type !== "created"]);
    if (type === "deleted") todos.delete(id);
    else todos.set(id, data);
  }
  return `[${[...todos.values()].join(",")}]`;
}

// The store contract shows that the events of the other stores are the same, and the system tests follow them.
test("GET /api/events sends each change with its position as the id, and any title in one line of data", async () => {
  await using service = serve(openMemory());
  const start = await service.store.position();
  await using events = await service.follow();
  const title = '\0\r\n\r\nevent: deleted\rdata: {}\n\n"\\ \u0085\ufeff 😀';
  const fields = `"id":1,"title":${JSON.stringify(title)}`;
  await service.sendJson("POST", "/api/todos", { title });
  const { epoch, sequence } = await service.store.position();
  const n = sequence - 1;
  await service.sendJson("PATCH", "/api/todos/1", { done: true });
  await service.sendJson("PATCH", "/api/todos/1", { done: true });
  await service.sendJson("POST", "/api/todos", { title: "" });
  await service.sendJson("PATCH", "/api/todos/1", { done: false });
  await service.send("DELETE", "/api/todos/1");
  await service.send("DELETE", "/api/todos/1");
  await service.sendJson("POST", "/api/todos", { title: "b" });
  expect(await events.take(6)).toEqual([
    { id: formatPosition(start), type: "position", data: "{}" },
    { id: `${epoch}-${n + 1}`, type: "created", data: `{${fields},"done":false}` },
    { id: `${epoch}-${n + 2}`, type: "updated", data: `{${fields},"done":true}` },
    { id: `${epoch}-${n + 3}`, type: "updated", data: `{${fields},"done":false}` },
    { id: `${epoch}-${n + 4}`, type: "deleted", data: '{"id":1}' },
    { id: `${epoch}-${n + 5}`, type: "created", data: '{"id":2,"title":"b","done":false}' },
  ]);
});

// The store has made the changes 1 to 5 and keeps 3 to 5. HERE stands for its epoch.
const starts: [first: string, then: number[], from: FollowOptions[]][] = [
  ["position HERE-5", [], [{}, { lastEventId: "" }]],
  ["", [], [{ since: "HERE-5" }]],
  ["", [5], [{ since: "HERE-4" }, { since: '"HERE-4"' }, { lastEventId: "", since: "HERE-4" }]],
  ["", [3, 4, 5], [{ since: "HERE-2" }]],
  ["", [4, 5], [{ since: "HERE-00003" }, { lastEventId: "HERE-3" }]],
  // Not kept, in the future, of another epoch, and malformed.
  ["resync HERE-5", [], [{ since: "HERE-1" }, { since: "HERE-6" }, { since: "9f86d081-5" }]],
  ["resync HERE-5", [], [{ lastEventId: "HERE" }, { lastEventId: "HERE", since: "HERE-4" }]],
  // The last id wins.
  ["", [5], [{ lastEventId: "HERE-4", since: "HERE-2" }]],
  ["", [4, 5], [{ lastEventId: "HERE-3", since: "HERE-0" }]],
  ["resync HERE-5", [], [{ lastEventId: "HERE-0", since: "HERE-4" }]],
  // What nginx and Apache make of a tag.
  ["", [5], ['W/"HERE-4"', "W/HERE-4", "HERE-4-gzip", 'W/"HERE-4-br"'].map((since) => ({ since }))],
  ["", [4, 5], [{ lastEventId: 'W/"HERE-3-gzip"' }]],
];

test("GET /api/events starts at the requested position and continues", async () => {
  await using service = serve(openMemory({ maxEvents: 3 }));
  for (let n = 1; n <= 5; n++) await service.store.insert(`${n}`);
  const { epoch } = await service.store.position();
  await using stack = new AsyncDisposableStack();
  const all = starts.flatMap(([first, then, from]) => from.map((one) => ({ first, then, from: one })));
  const streams = all.map(async ({ from, first, then }) => {
    const options = Object.fromEntries(
      Object.entries(from).map(([name, text]) => [name, text.replaceAll("HERE", epoch)]),
    );
    const events = stack.use(await service.follow(options));
    const expected = [
      ...(first === "" ? [] : [first.replace("HERE", epoch)]),
      ...[...then, 6, 7].map((n) => `created ${epoch}-${n}`),
    ];
    const received = first === "" ? [] : await events.take(1);
    return { from, events, expected, received };
  });
  const started = await Promise.all(streams);
  for (const title of ["6", "7"]) await service.store.insert(title);
  for (const { from, events, expected, received } of started) {
    received.push(...(await events.take(expected.length - received.length)));
    expect([from, received.map(({ type, id }) => `${type} ${id}`)]).toEqual([from, expected]);
  }
});

test("GET /api/events sends the changes since the ETag of a list, which turn it into the latest list", async () => {
  await using service = serve(openMemory());
  const looks: { list: string; n: number; events: EventStream }[] = [];
  let writing = true;
  const look = async (): Promise<void> => {
    // Bun limits a process to 256 concurrent fetches.
    while (writing && looks.length < 50) {
      const response = await service.send("GET", "/api/todos");
      const since = response.headers.get("etag")?.slice(1, -1) ?? "";
      const events = await service.follow({ since });
      const n = nOf(since);
      looks.push({ list: await response.text(), n, events });
      await until(async () => !writing || nOf(await here(service.store)) > n, "there is another change");
    }
  };
  const written = write(service, 4, 100).finally(() => {
    writing = false;
  });
  await Promise.all([written, ...Array.from({ length: 8 }, look)]);
  const last = (await service.store.position()).sequence;
  const final = await (await service.send("GET", "/api/todos")).text();
  for (const { list, n, events } of looks) {
    const received = await events.take(last - n);
    expectAll(received, n + 1, last);
    expect(applied(list, received)).toBe(final);
    await events.close();
  }
  expect(looks.filter(({ n }) => n > 0 && n < last).length).toBeGreaterThan(5);
});

test("GET /api/events replays 10,000 missed changes", async () => {
  await using service = serve(openMemory());
  const since = await here(service.store);
  await Promise.all(Array.from({ length: 10_000 }, () => service.store.insert(LONGEST_TITLE)));
  await using events = await service.follow({ since });
  expectAll(await events.take(10_000), 1, 10_000);
});

test("GET /api/events ends for a slow subscriber, which gets no further heartbeats, and resync when it reconnects", async () => {
  await using service = serve(openMemory({ maxEvents: 500 }), { limits: { heartbeatMs: 5 } });
  const { store } = service;
  const stalled = await startReading(service.port, `/api/events?since=${await here(store)}`);
  await using reader = await service.follow();
  await reader.take(1);
  for (let n = 0; n < 12_000; n += 200) {
    await Promise.all(Array.from({ length: 200 }, () => store.insert(LONGEST_TITLE)));
    expectAll(await reader.take(200), n + 1, n + 200);
  }
  const before = reader.comments();
  const next = reader.take(1);
  await until(() => reader.comments() > 2 * before + 50, "another subscriber has had many heartbeats");

  const parser = new SseParser();
  const received = await readOn(stalled, parser);
  expect(parser.comments).toBeLessThan(before + 50);
  expect(received.length).toBeWithin(100, 11_500);
  expectAll(received, 1, received.length);
  await using again = await service.follow({ lastEventId: received.at(-1)?.id ?? "" });
  const [resync] = await again.take(1);
  await store.delete(12_000n);
  await next;
  expect([resync, ...(await again.take(1))].map((event) => [event?.type, nOf(event?.id ?? "")])).toEqual([
    ["resync", 12_000],
    ["deleted", 12_001],
  ]);
});

test.each([
  ...["since=", "since=HERE-x", "since=%22HERE-1", "since=HERE-1-1-gzip-", "since=HERE-gzip"],
  ...["since=HERE-1&since=HERE-1", "%73ince=x"],
])("an event stream rejects ?%s", async (query) => {
  await using service = serve(openMemory());
  await service.store.insert("x");
  const path = `/api/events?${query.replaceAll("HERE", (await service.store.position()).epoch)}`;
  const resuming = { headers: { "Last-Event-ID": await here(service.store) } };
  expect(await service.outcome(`GET ${path}`)).toBe("400 invalid_query");
  expect(await service.outcome(`HEAD ${path}`)).toBe("400");
  expect(await service.outcome(`GET ${path}`, resuming)).toBe("400 invalid_query");
});

test("an event stream has headers that disable caching and buffering", async () => {
  await using service = serve(openMemory());
  const { status, headers, body } = await service.send("GET", "/api/events");
  await body?.cancel();
  const names = ["content-type", "cache-control", "x-accel-buffering", "x-content-type-options", "vary"];
  const shown = names.map((name) => headers.get(name));
  expect(status).toBe(200);
  expect(shown).toEqual(["text/event-stream", "no-store, no-transform", "no", "nosniff", "Origin"]);
});

test("an event stream combines changes in quick succession in one chunk", async () => {
  const watched = watch(openMemory());
  await using service = serve(watched.store);
  const socket = await openSocket(service.port, request("GET /api/events"));
  let text = "";
  socket.on("data", (bytes) => {
    text += bytes;
  });
  await until(() => watched.open() === 1, "the stream is open");
  for (let n = 1; n <= 100; n++) {
    await service.store.insert(`${n}`);
    await new Promise(setImmediate);
  }
  await until(() => text.match(/^event: created$/gm)?.length === 100, "all changes have arrived");
  socket.destroy();
  // Separate events would be 101 chunks.
  expect(text.match(/\r\n[0-9a-f]+\r\nid: /g)?.length).toBeLessThan(50);
});

test.each(["latest", "since"])("an event stream sends heartbeats without blank lines: %s", async (start) => {
  await using service = serve(openMemory(), { limits: { heartbeatMs: 20 } });
  const query = start === "since" ? `?since=${await here(service.store)}` : "";
  const { body } = await fetch(`${service.url}/api/events${query}`);
  let text = "";
  for await (const chunk of body?.pipeThrough(new TextDecoderStream()) ?? []) {
    text += chunk;
    if ((text.match(/^:$/gm)?.length ?? 0) > 3) break;
  }
  expect(text).toMatch(start === "since" ? /^(:\n)+$/ : /^id: .+\nevent: position\ndata: {}\n\n(:\n)+$/);
});

test.each<[what: string, resumes: boolean, changes: number]>([
  ["new, without changes", false, 0],
  ["resumed, after a change", true, 1],
])("an event stream ends when its subscriber disconnects: %s", async (_what, resumes, changes) => {
  const watched = await watchedStore();
  await using service = serve(watched.store);
  const events = await service.follow(resumes ? { since: watched.start } : {});
  for (let n = 0; n < changes; n++) await service.store.insert("x");
  await events.take(changes);
  await until(() => watched.open() === 1, "its changes are read");
  await events.close();
  await until(() => watched.open() === 0, "its stream is given up");
  await new Promise(setImmediate);
  expect(watched.positionsAsked()).toBe(1);
});

test("an event stream releases its iterator and timer when its subscriber disconnects", async () => {
  const watched = await watchedStore();
  await using service = serve(watched.store);
  const comeAndGo = async (times: number): Promise<void> => {
    for (let time = 0; time < times; time += 50) {
      const readers = Array.from({ length: 50 }, () =>
        startReading(service.port, `/api/events?since=${watched.start}`),
      );
      for (const socket of await Promise.all(readers)) socket.destroy();
      await until(() => watched.open() === 0, "streams are given up");
    }
  };
  const objects = (): number => {
    Bun.gc(true);
    return heapStats().objectCount;
  };
  await comeAndGo(100);
  const before = objects();
  await comeAndGo(300);
  await until(() => objects() - before < 300, "there are fewer objects more than there were streams");
});

test("an event stream ends when its subscriber disconnects before reading buffered events", async () => {
  const watched = await watchedStore();
  await using service = serve(watched.store);
  await Promise.all(Array.from({ length: 10_000 }, () => watched.store.insert(LONGEST_TITLE)));
  const stalled = await startReading(service.port, `/api/events?since=${watched.start}`);
  await until(() => watched.read() >= 500, "the service has read ahead");
  expect(watched.open()).toBe(1);
  stalled.destroy();
  await until(() => watched.open() === 0, "its stream is given up");
});

test("an event stream logs no error when its store fails because the stream ends", async () => {
  async function* events(_after: unknown, signal?: AbortSignal): AsyncGenerator<TodoEvent[]> {
    await new Promise((_resolve, reject) => signal?.addEventListener("abort", () => reject(BROKEN)));
    yield [];
  }
  await using service = serve(storeWith({ events }));
  await using stream = await service.follow();
  await stream.take(1);
  service.close();
  expect([await stream.rest(), service.lines]).toEqual([[], []]);
});

test.each<[what: string, from: FollowOptions, answers: Partial<TodoStore>, types: string[]]>([
  ["immediately", {}, { events: fail }, ["position"]],
  ["after a change", {}, { events: failAfterOne }, ["position", "deleted"]],
  ["when it replays missed changes", { since: "e-1" }, { events: failAfterOne }, ["deleted"]],
  ["when the missed changes are lost", { since: "e-1" }, failsAtSecond(), []],
])("an event stream ends and logs the error when its store fails %s", async (_what, from, answers, types) => {
  await using service = serve(storeWith(answers));
  await using events = await service.follow(from);
  expect((await events.rest()).map(({ type }) => type)).toEqual(types);
  const line = { level: "error", message: "event stream aborted" } as const;
  expect(service.lines).toMatchObject([{ ...line, fields: { err: BROKEN } }]);
  await using again = await service.follow(from);
  await again.rest();
  service.close();
  expect(service.lines).toMatchObject([
    { ...line, fields: { err: BROKEN } },
    { ...line, fields: { err: BROKEN, times: 1 } },
  ]);
  expect((await service.send("GET", "/livez")).status).toBe(200);
});

test.each<[from: FollowOptions, received: string[]]>([
  [{}, ["position e-1", "deleted e-2"]],
  [{ since: "other-1" }, ["resync e-2", "deleted e-3"]],
])("an event stream continues from the position that it sends: %j", async (from, received) => {
  let n = 0;
  const store = storeWith({
    position: async () => ({ epoch: "e", sequence: ++n }),
    events: async function* (after) {
      if (after.epoch === "e")
        yield [{ type: "deleted", position: { epoch: "e", sequence: after.sequence + 1 }, id: 1n }];
    },
  });
  await using service = serve(store);
  await using events = await service.follow(from);
  expect((await events.rest()).map(({ type, id }) => `${type} ${id}`)).toEqual(received);
});

test("an event stream ends when the store's feed ends, and sends resync if no event was sent", async () => {
  const position = { epoch: "e", sequence: 0 };
  const feed = new ChangeFeed(10, position);
  const store = storeWith({
    position: () => position,
    events: (after, signal) => feed.after(after, signal),
  });
  await using service = serve(store);
  await using live = await service.follow();
  await using resumed = await service.follow({ since: "e-0" });
  feed.end();
  expect((await live.rest()).map(({ type }) => type)).toEqual(["position"]);
  expect((await resumed.rest()).map(({ type }) => type)).toEqual(["resync"]);
});

const BROKEN = new Error("s3cret");

function fail(): never {
  throw BROKEN;
}

async function* failAfterOne(): AsyncGenerator<readonly TodoEvent[]> {
  yield [{ type: "deleted", position: { epoch: "e", sequence: 2 }, id: 1n }];
  fail();
}

/** Returns a position and throws, in turn. */
function failsAtSecond(): Partial<TodoStore> {
  let calls = 0;
  return { position: async () => (++calls % 2 === 1 ? { epoch: "f", sequence: 1 } : fail()) };
}

async function watchedStore() {
  const memory = openMemory();
  return { ...watch(memory), start: await here(memory) };
}

test("a service that shuts down ends open and later streams with a complete body", async () => {
  await using service = serve(openMemory());
  await service.store.insert("x");
  const since = await here(service.store);
  const readers = await Promise.all([{}, { since }, { since: "other-1" }].map(service.follow));
  const [live, , lost] = readers;
  expect((await live?.take(1))?.map(({ type }) => type)).toEqual(["position"]);
  expect((await lost?.take(1))?.map(({ type }) => type)).toEqual(["resync"]);
  service.drain();
  service.close();
  for (const reader of readers) expect(await reader.rest()).toEqual([]);

  await service.store.insert("y");
  await using late = await service.follow({ lastEventId: since });
  expect(late.response.headers.get("connection")).toBe("close");
  expect(await late.rest()).toEqual([]);
});

// One object, which is compiled once.
const TODO = { $ref: "#/components/schemas/Todo" };
const DELETED = {
  type: "object",
  required: ["id"],
  properties: { id: contract.components.schemas.Todo.properties.id },
  additionalProperties: false,
};
