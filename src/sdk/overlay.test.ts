import { describe, expect, test } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import fc from "fast-check";
import { startService, type TestService } from "../../test/service.ts";
import { until } from "../../test/until.ts";
import { openMemory } from "../storage/memory/store.ts";
import { openSqlite } from "../storage/sqlite/store.ts";
import type { TodoStore } from "../todo.ts";
import { compareIds, type LiveList, type Todo, TodoApi } from "./client.ts";
import { isNewId, newId, Overlay } from "./overlay.ts";

const ROUNDS = Number(process.env.TODO_TEST_OVERLAY_ROUNDS ?? 25);
/** Few events, so that a list that missed some must be loaded again. */
const MAX_EVENTS = 3;
const BASE = "http://todo.example";

type Step =
  /** Each title of `add` occurs once. Those of `addSame` and `addOther` can be equal. */
  | { readonly what: "add" | "addSame" | "addOther" | "cut" | "restart" | "settle" }
  | { readonly what: "tick" | "delete" | "tickOther" | "deleteOther"; readonly at: number };

const at = fc.nat({ max: 20 });
const step: fc.Arbitrary<Step> = fc.oneof(
  { weight: 8, arbitrary: fc.record({ what: fc.constantFrom("add", "addSame", "addOther") }) },
  { weight: 9, arbitrary: fc.record({ what: fc.constantFrom("tick", "tick", "delete"), at }) },
  { weight: 5, arbitrary: fc.record({ what: fc.constantFrom("tickOther", "deleteOther"), at }) },
  { weight: 3, arbitrary: fc.record({ what: fc.constantFrom("cut", "restart", "restart", "settle") }) },
);

const run = fc.record({
  /** A store in memory loses all to-dos when it is restarted. A SQLite file begins a new epoch. */
  kind: fc.constantFrom("memory", "sqlite"),
  steps: fc.array(step, { minLength: 5, maxLength: 25 }),
  /** Milliseconds of requests, responses, events and pauses, in turn. */
  delays: fc.array(fc.integer({ min: 0, max: 25 }), { minLength: 20, maxLength: 40 }),
  /** Which requests lose their responses, in turn. */
  losses: fc.array(fc.boolean(), { minLength: 10, maxLength: 20 }),
});

/** Two services that share a store, as replicas do. */
interface Servers {
  readonly store: TodoStore;
  readonly services: readonly TestService[];
}

/** Returns a client of servers that can be replaced, on a network with delays and lost responses. */
function clientOf(getServers: () => Servers, nextDelay: () => number, isLost: () => boolean) {
  const streams = new Set<() => void>();
  let requests = 0;
  const isFaulty = { now: true };
  const api = new TodoApi({
    baseUrl: BASE,
    retries: 50,
    fetch: async (url, init) => {
      // A list is slow, so that writes are answered while it loads.
      await Bun.sleep(nextDelay() * (url.endsWith("/todos") && init.method === "GET" ? 6 : 1));
      const { services } = getServers();
      const service = services[++requests % services.length];
      const response = await fetch(url.replace(BASE, service?.url ?? ""), init);
      if (!url.includes("/events")) {
        const body = await response.arrayBuffer();
        await Bun.sleep(nextDelay());
        if (isFaulty.now && isLost()) throw new TypeError("the response is lost");
        return new Response(response.status === 204 ? null : body, response);
      }
      const delayed = new TransformStream<Uint8Array, Uint8Array>({
        transform: async (chunk, controller) => {
          await Bun.sleep(nextDelay());
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
  /** All that were ever created. */
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
      const before = new Set(last.map(({ title }) => title));
      last = todos.slice();
      const counts = Map.groupBy(todos, ({ title }) => title);
      for (const title of before) if (!counts.has(title)) gone.add(title);
      for (const [title, { least, most, changes }] of bounds) {
        const all = counts.get(title) ?? [];
        expect([title, all.length, least, most]).toEqual([
          title,
          Math.min(Math.max(all.length, least), most),
          least,
          most,
        ]);
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
  const list = [{ id: "1", title: "1", done: false }];
  const effect = (kind: "create" | "setDone" | "delete", id: string, done = false) => ({
    kind,
    todo: { id, title: id, done },
  });

  test("drops a write at once if its answer has no position", () => {
    const overlay = new Overlay();
    overlay.add("a", effect("setDone", "1", true), "1");
    overlay.confirm("a", { ...effect("setDone", "1", true), position: undefined });
    expect(overlay.apply(list)).toEqual(list);
  });

  test("does not change a to-do of another store that has the same id", () => {
    const overlay = new Overlay();
    overlay.add("a", effect("setDone", "1", true), "1");
    overlay.add("b", effect("delete", "1"), "1");
    const other = [{ id: "1", title: "of another store", done: false }];
    expect(overlay.apply(other)).toEqual(other);
  });

  test("hides no to-do that is older than a new one of the same title", () => {
    const overlay = new Overlay();
    overlay.add("a", { kind: "create", todo: { id: newId(), title: "1", done: false } }, "1");
    const other = { id: "2", title: "1", done: true };
    expect(overlay.apply([...list, other]).map(({ id }) => isNewId(id) || id)).toEqual(["1", true]);
  });

  test("hides what may be the answer in a store that begins again with the first id", () => {
    const overlay = new Overlay();
    overlay.advance({ todos: list, position: "e-5" });
    overlay.add("a", { kind: "create", todo: { id: newId(), title: "x", done: false } }, "100");
    overlay.advance({ todos: [], position: "f-0" }, overlay.answers);
    expect(overlay.apply([{ id: "1", title: "x", done: false }])).toHaveLength(1);
  });
});

test("a followed list shows each write at once and exactly once, whatever else happens", async () => {
  await fc.assert(
    fc.asyncProperty(run, async ({ kind, steps, delays, losses }) => {
      await using stack = new AsyncDisposableStack();
      const folder = mkdtempSync(join(tmpdir(), "overlay-"));
      stack.defer(() => rmSync(folder, { recursive: true }));
      let [delayed, lost] = [0, 0];
      const nextDelay = (): number => delays[++delayed % delays.length] ?? 0;
      const isLost = (): boolean => losses[++lost % losses.length] === true && lost % 3 === 0;
      const judge = createJudge();
      const { boundsOf } = judge;

      let starts = 0n;
      const start = async (): Promise<Servers> => {
        const options = { maxEvents: MAX_EVENTS };
        // No id is assigned again. A write to an old list would hit another to-do, and no client could know.
        const lastId = 1000n * starts++;
        const store =
          kind === "memory"
            ? openMemory({ ...options, lastId })
            : await openSqlite(join(folder, "todos.db"), options);
        return { store, services: [startService({ store }), startService({ store })] };
      };
      const stop = async ({ store, services }: Servers): Promise<void> => {
        for (const service of services) await service[Symbol.asyncDispose]();
        await store.close();
      };
      let servers = await start();
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

      for (const [index, { what, ...rest }] of steps.entries()) {
        const { todos } = await new TodoApi({ baseUrl: servers.services[0]?.url ?? "" }).list();
        const chosen = "at" in rest ? judge.shown[rest.at % judge.shown.length] : undefined;
        const other = "at" in rest ? todos[rest.at % todos.length] : undefined;
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
          if (kind === "memory") {
            await Promise.all(writes);
            judge.forgetLeast();
          }
          const old = servers;
          cut();
          if (kind === "sqlite") await stop(old);
          servers = await start();
          if (kind === "memory") await stop(old);
        } else if (what === "settle") await Promise.all(writes);
        await Bun.sleep(nextDelay());
        if (failure !== undefined) throw failure;
      }
      calm();
      await Promise.all(writes);
      const present = new TodoApi({ baseUrl: servers.services[0]?.url ?? "" });
      await until(async () => list.getState().position === (await present.list()).position, "all changes");
      await until(
        async () => Bun.deepEquals(list.getState().todos, (await present.list()).todos),
        "the service's list",
      );
      if (failure !== undefined) throw failure;
    }),
    {
      numRuns: ROUNDS,
      endOnFailure: true,
      ...(process.env.TODO_TEST_SEED !== undefined && { seed: Number(process.env.TODO_TEST_SEED) }),
    },
  );
});
