import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { hurry } from "../../test/hurry.ts";
import { until } from "../../test/until.ts";
import { createService, type Service } from "../http/service.ts";
import { openMemory } from "../storage/memory/store.ts";
import type { TodoStore } from "../todo.ts";
import { compareIds, type LiveList, type Todo, TodoApi } from "./client.ts";
import { isNewId, newId, Overlay } from "./overlay.ts";

const ROUNDS = 300;
/** Few events, so that a list that missed some must be loaded again. */
const MAX_EVENTS = 3;
const BASE = "http://localhost";

/** Each title of `add` occurs once. Those of `addSame` and `addOther` can be equal. */
const step = fc.record({
  what: fc.oneof(
    { weight: 8, arbitrary: fc.constantFrom("add", "addSame", "addOther") },
    { weight: 9, arbitrary: fc.constantFrom("tick", "tick", "delete") },
    { weight: 5, arbitrary: fc.constantFrom("tickOther", "deleteOther") },
    { weight: 3, arbitrary: fc.constantFrom("cut", "restart", "restart", "settle") },
  ),
  /** Which to-do is changed. */
  at: fc.nat({ max: 20 }),
});

const run = fc.record({
  /** Whether a store keeps its to-dos when it is restarted. It always begins a new epoch. */
  isKept: fc.boolean(),
  steps: fc.array(step, { minLength: 5, maxLength: 25 }),
  /** Milliseconds of requests, responses, events and pauses, in turn. */
  delays: fc.array(fc.integer({ min: 0, max: 25 }), { minLength: 20, maxLength: 40 }),
  /** Which requests lose their responses, in turn. */
  losses: fc.array(fc.boolean(), { minLength: 10, maxLength: 20 }),
});

/** Two services that share a store, as replicas do. */
interface Servers {
  readonly store: TodoStore;
  readonly services: readonly [Service, Service];
  readonly created: ReadonlyMap<bigint, Parameters<TodoStore["insert"]>>;
}

async function start(lastId: bigint, kept?: Servers): Promise<Servers> {
  const store = openMemory({ maxEvents: MAX_EVENTS, lastId });
  const created = new Map<bigint, Parameters<TodoStore["insert"]>>();
  const insert = store.insert.bind(store);
  store.insert = async (...args) => {
    const result = await insert(...args);
    if (!created.has(result.id)) created.set(result.id, args);
    return result;
  };
  const { todos } = kept === undefined ? { todos: [] } : await listOf(kept);
  const left = new Map(todos.map(({ id, done }) => [BigInt(id), done]));
  for (const [id, args] of kept?.created ?? []) {
    await store.insert(...args);
    if (!left.has(id)) await store.delete(id);
    else if (left.get(id)) await store.setDone(id, true);
  }
  return { store, services: [createService({ store }), createService({ store })], created };
}

async function stop({ store, services }: Servers): Promise<void> {
  for (const service of services) service.close();
  await store.close();
}

async function call({ routes }: Service, url: string, init: RequestInit): Promise<Response> {
  const { pathname } = new URL(url);
  const id = /^\/api\/todos\/(.*)/.exec(pathname)?.[1];
  const handler = routes[id === undefined ? pathname : "/api/todos/:id"];
  if (handler === undefined) throw new Error(`no route ${pathname}`);
  const request = Object.assign(new Request(url, init), { params: id === undefined ? {} : { id } });
  const server = {
    protocol: "http",
    requestIP: () => ({ address: "127.0.0.1" }),
    timeout: () => {},
  } as const;
  return await handler(request, server);
}

const listOf = ({ services: [service] }: Servers) =>
  new TodoApi({ baseUrl: BASE, fetch: (url, init) => call(service, url, init) }).list();

const sleep = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

function clientOf(getServers: () => Servers, nextDelay: () => number, isLost: () => boolean) {
  const streams = new Set<() => void>();
  let requests = 0;
  const isFaulty = { now: true };
  const api = new TodoApi({
    baseUrl: BASE,
    retries: 50,
    fetch: async (url, init) => {
      // A list is slow, so that writes are answered while it loads.
      await sleep(nextDelay() * (url.endsWith("/todos") && init.method === "GET" ? 6 : 1));
      const { services } = getServers();
      const service = services[++requests % services.length];
      if (service === undefined) throw new TypeError("no service");
      const response = await call(service, url, init);
      if (!url.includes("/events")) {
        const body = await response.arrayBuffer();
        await sleep(nextDelay());
        if (isFaulty.now && isLost()) throw new TypeError("the response is lost");
        return new Response(response.status === 204 ? null : body, response);
      }
      const delayed = new TransformStream<Uint8Array, Uint8Array>({
        transform: async (chunk, controller) => {
          await sleep(nextDelay());
          controller.enqueue(chunk);
        },
      });
      const cut = new AbortController();
      streams.add(() => cut.abort());
      response.body?.pipeTo(delayed.writable, { signal: cut.signal }).catch(() => {});
      return new Response(delayed.readable, response);
    },
  });
  const cut = (): void => {
    for (const end of streams) end();
    streams.clear();
  };
  return { api, cut, calm: () => (isFaulty.now = false) };
}

/** What the list may show of the to-dos with a title. */
interface Bounds {
  /** Own ones that were created, and not rejected or deleted by anyone. */
  least: number;
  most: number;
  /** How often their state may have changed. */
  changes: number;
}

/** Checks each state of a list against what happened until then. */
function createJudge() {
  const bounds = new Map<string, Bounds>();
  const shown = new Map<string, { readonly done: boolean; readonly changes: number }>();
  const gone = new Set<string>();
  let last: readonly Todo[] = [];
  const boundsOf = (title: string): Bounds => {
    const known = bounds.get(title) ?? { least: 0, most: 0, changes: 0 };
    bounds.set(title, known);
    return known;
  };
  return {
    boundsOf,
    get shown(): readonly Todo[] {
      return last;
    },
    isShown: (id: string): Todo | undefined => last.find((todo) => todo.id === id),
    forgetLeast: (): void => {
      for (const one of bounds.values()) one.least = 0;
    },
    check: ({ todos }: LiveList): void => {
      const ids = todos.map(({ id }) => id);
      expect(ids).toEqual([...new Set(ids)].sort(compareIds));
      const counts = Map.groupBy(todos, ({ title }) => title);
      for (const { title } of last) if (!counts.has(title)) gone.add(title);
      last = todos.slice();
      for (const [title, { least, most, changes }] of bounds) {
        const all = counts.get(title) ?? [];
        const count = Math.min(Math.max(all.length, least), most);
        expect({ title, count: all.length, least, most }).toEqual({ title, count, least, most });
        const [todo] = all;
        if (todo === undefined || !title.startsWith("own")) continue;
        expect([title, gone.has(title)]).toEqual([title, false]);
        const previous = shown.get(title) ?? { done: false, changes: 0 };
        const now = { done: todo.done, changes: previous.changes + Number(todo.done !== previous.done) };
        expect([title, "flickers", now.changes > changes]).toEqual([title, "flickers", false]);
        shown.set(title, now);
      }
    },
  };
}

describe("an overlay", () => {
  const todo = { id: "1", title: "1", done: false };
  const list = [todo];
  const effect = (kind: "create" | "setDone" | "delete", id: string, done = false) => ({
    kind,
    todo: { id, title: id, done },
  });

  const startNew = (after: string, position?: string): Overlay => {
    const overlay = new Overlay();
    if (position !== undefined) overlay.advance(position);
    overlay.pending.push({ kind: "create", todo: { ...todo, id: newId() }, after, position });
    return overlay;
  };

  test("drops a write at once if its answer has no position", () => {
    const overlay = new Overlay();
    overlay.confirm("1", { ...effect("setDone", "1", true), position: undefined });
    expect(overlay.apply(list)).toEqual(list);
  });

  test("does not change a to-do of another store that has the same id", () => {
    const overlay = new Overlay();
    overlay.pending.push(effect("setDone", "1", true), effect("delete", "1"));
    const other = [{ id: "1", title: "of another store", done: false }];
    expect(overlay.apply(other)).toEqual(other);
  });

  test("shows no row for a new to-do with a blank title, which the service rejects", () => {
    const overlay = new Overlay();
    for (const title of ["", " \t"])
      overlay.pending.push({ kind: "create", todo: { ...todo, id: newId(), title } });
    expect(overlay.apply(list)).toEqual(list);
  });

  test("hides no to-do that is older than a new one of the same title", () => {
    const shown = startNew("1").apply([todo, { ...todo, id: "2", done: true }]);
    expect(shown.map(({ id }) => isNewId(id) || id)).toEqual(["1", true]);
  });

  test("hides what may be the answer in a store that begins again with the first id", () => {
    const overlay = startNew("100", "e-5");
    expect(overlay.apply(list)).toHaveLength(2);
    overlay.advance("f-0", overlay.answers);
    expect(overlay.apply(list)).toHaveLength(1);
  });

  test("shows a to-do that is older than a write from before the first list", () => {
    const overlay = startNew("50");
    overlay.advance("e-9", overlay.answers);
    expect(overlay.apply(list)).toHaveLength(2);
  });
});

test("a followed list shows each write at once and exactly once, whatever else happens", async () => {
  await fc.assert(
    fc.asyncProperty(run, async ({ isKept, steps, delays, losses }) => {
      using _clock = hurry();
      await using stack = new AsyncDisposableStack();
      let [delayed, lost] = [0, 0];
      const nextDelay = (): number => delays[++delayed % delays.length] ?? 0;
      const isLost = (): boolean => losses[++lost % losses.length] === true && lost % 3 === 0;
      const judge = createJudge();
      const { boundsOf } = judge;

      // No id is assigned again. A write to an old list would hit another to-do, and no client could know.
      let starts = 0n;
      let servers = await start(0n);
      stack.defer(() => stop(servers));

      const { api, cut, calm } = clientOf(() => servers, nextDelay, isLost);
      const list = api.follow();
      let failure: unknown;
      stack.defer(
        list.subscribe((state) => {
          try {
            judge.check(state);
          } catch (error) {
            failure ??= error;
          }
        }),
      );
      const writes: Promise<unknown>[] = [];
      const add = (title: string): void => {
        const one = boundsOf(title);
        one.most++;
        one.least++;
        writes.push(list.create(title));
        judge.check(list.getState());
        expect(judge.shown.some((todo) => todo.title === title)).toBe(true);
      };
      const ignoreAbsent = ({ code }: { readonly code: string }): void => expect(code).toBe("todo_not_found");

      for (const [index, { what, at }] of steps.entries()) {
        const { todos } = await listOf(servers);
        const chosen = judge.shown[at % judge.shown.length];
        const other = todos[at % todos.length];
        if (what === "add") add(`own ${index}`);
        else if (what === "addSame") add(`same ${index % 2}`);
        else if (what === "addOther") {
          boundsOf(`same ${index % 2}`).most++;
          await servers.store.insert(`same ${index % 2}`);
        } else if (what === "tick" && chosen !== undefined) {
          boundsOf(chosen.title).changes++;
          writes.push(list.setDone(chosen.id, !chosen.done).catch(ignoreAbsent));
          judge.check(list.getState());
          // A change that arrived since the last state may have deleted it.
          expect(judge.isShown(chosen.id)?.done ?? !chosen.done).toBe(!chosen.done);
        } else if (what === "delete" && chosen !== undefined) {
          boundsOf(chosen.title).least = 0;
          writes.push(list.delete(chosen.id).catch(ignoreAbsent));
          judge.check(list.getState());
          expect(judge.isShown(chosen.id)).toBeUndefined();
        } else if (what === "tickOther" && other !== undefined) {
          boundsOf(other.title).changes++;
          await servers.store.setDone(BigInt(other.id), !other.done);
        } else if (what === "deleteOther" && other !== undefined) {
          boundsOf(other.title).least = 0;
          await servers.store.delete(BigInt(other.id));
        } else if (what === "cut") cut();
        else if (what === "restart") {
          if (!isKept) {
            await Promise.all(writes);
            judge.forgetLeast();
          }
          cut();
          const old = servers;
          servers = isKept ? await start(0n, old) : await start(1000n * ++starts);
          await stop(old);
        } else if (what === "settle") await Promise.all(writes);
        await sleep(nextDelay());
        if (failure !== undefined) throw failure;
      }
      calm();
      await Promise.all(writes);
      const isSame = async (name: "position" | "todos"): Promise<boolean> =>
        Bun.deepEquals(list.getState()[name], (await listOf(servers))[name]);
      for (const name of ["position", "todos"] as const) await until(() => isSame(name), `the same ${name}`);
      if (failure !== undefined) throw failure;
    }),
    {
      numRuns: ROUNDS,
      endOnFailure: true,
      ...(process.env.TODO_TEST_SEED !== undefined && { seed: Number(process.env.TODO_TEST_SEED) }),
    },
  );
});
