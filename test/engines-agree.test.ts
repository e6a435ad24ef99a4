import { afterAll, beforeAll, expect, test } from "bun:test";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import fc from "fast-check";
import { Failure } from "../src/failure.ts";
import { decode, read } from "../src/storage/contract.ts";
import { openMemory } from "../src/storage/memory.ts";
import { openPostgres } from "../src/storage/postgres/engine.ts";
import { openSqlite } from "../src/storage/sqlite/engine.ts";
import type { ListQuery, TodoId, TodoStore } from "../src/todo.ts";
import { type Databases, openDatabases, whyNoDatabase } from "./postgres.ts";

const SEQUENCES = Number(process.env.TODO_TEST_SEQUENCES ?? 300);
const HOUR = 60 * 60 * 1000;
/** Small, so that sequences get there. */
const LIMITS = { maxTodos: 6, maxEvents: 12 };

type Write =
  | { readonly name: "insert"; readonly title: string; readonly key: string | undefined }
  | { readonly name: "setDone"; readonly id: TodoId; readonly done: boolean }
  | { readonly name: "delete"; readonly id: TodoId };

/** Ids count from the last one before the sequence; the huge ones are what they are. */
type Step =
  | { readonly name: "write"; readonly atOnce: readonly Write[] }
  | { readonly name: "get"; readonly id: TodoId }
  | { readonly name: "list"; readonly query: ListQuery }
  | { readonly name: "events"; readonly back: number }
  | { readonly name: "wait"; readonly hours: number }
  | { readonly name: "reopen" };

const HUGE = 2n ** 53n;
const HOSTILE = [
  "\u0000",
  '"\\\b\n',
  "\u2028\uFEFF",
  "'; DROP TABLE todos; --",
  '","done":true}',
  "\n+{",
  "😀",
];
const TITLE = fc.oneof(
  fc.constantFrom(...HOSTILE),
  fc.string({ unit: "binary", minLength: 1, maxLength: 120 }),
);
const ID = fc.oneof(
  { weight: 9, arbitrary: fc.bigInt({ min: 0n, max: 15n }) },
  { weight: 1, arbitrary: fc.constantFrom(HUGE, 2n ** 63n - 1n, 2n ** 63n, 2n ** 64n - 1n) },
);
const KEY = fc.constantFrom(..."abcdefghij", "\u0000", "__proto__");
const WRITE: fc.Arbitrary<Write> = fc.oneof(
  {
    weight: 3,
    arbitrary: fc.record({ name: fc.constant("insert"), title: TITLE, key: fc.constant(undefined) }),
  },
  {
    weight: 2,
    arbitrary: fc.record({ name: fc.constant("insert"), title: fc.constantFrom("x", "x", "y"), key: KEY }),
  },
  { weight: 2, arbitrary: fc.record({ name: fc.constant("setDone"), id: ID, done: fc.boolean() }) },
  { weight: 4, arbitrary: fc.record({ name: fc.constant("delete"), id: ID }) },
);
const QUERY = fc.record(
  { after: ID, limit: fc.integer({ min: 1, max: 5 }), done: fc.boolean() },
  { requiredKeys: [] },
);
const STEP: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 24,
    arbitrary: fc.record({
      name: fc.constant("write"),
      atOnce: fc.array(WRITE, { minLength: 1, maxLength: 6 }),
    }),
  },
  { weight: 6, arbitrary: fc.record({ name: fc.constant("get"), id: ID }) },
  { weight: 6, arbitrary: fc.record({ name: fc.constant("list"), query: QUERY }) },
  { weight: 4, arbitrary: fc.record({ name: fc.constant("events"), back: fc.integer({ min: 1, max: 20 }) }) },
  { weight: 2, arbitrary: fc.record({ name: fc.constant("wait"), hours: fc.constantFrom(1, 12, 24) }) },
  { weight: 1, arbitrary: fc.record({ name: fc.constant("reopen") }) },
);

const folder = await mkdtemp(join(tmpdir(), "todo-agree-"));
afterAll(() => rm(folder, { recursive: true }));
let files = 0;
let hours = 0;
const options = { ...LIMITS, now: () => hours * HOUR };

let databases: Databases | undefined;
beforeAll(async () => {
  if (whyNoDatabase === undefined) databases = await openDatabases({ fsync: "off" });
}, 30_000);
afterAll(() => databases?.[Symbol.asyncDispose](), 30_000);

/** A store that can be opened again. */
interface Engine {
  readonly name: string;
  store: TodoStore;
  readonly open: () => Promise<TodoStore>;
  /** What may be asked of it at once, for it to come to what it comes to one after the other. */
  readonly runs: (writes: readonly Write[]) => Write[][];
}

/** One of each kind, to which the same happens. */
async function openEngines(): Promise<Engine[]> {
  const path = join(folder, `${++files}.db`);
  const url = await databases?.newDatabase();
  const [memory, atOnce] = [openMemory(options), (writes: readonly Write[]) => [[...writes]]];
  const engines: Omit<Engine, "store">[] = [
    { name: "memory", open: async () => memory, runs: atOnce },
    { name: "SQLite", open: () => openSqlite(path, options), runs: atOnce },
  ];
  if (url !== undefined)
    engines.push({ name: "PostgreSQL", open: () => openPostgres(url, options), runs: inItsOrder });
  return Promise.all(engines.map(async (engine) => ({ ...engine, store: await engine.open() })));
}

const close = (engines: readonly Engine[]) => Promise.all(engines.map(({ store }) => store.close()));

async function reopen(engines: readonly Engine[]): Promise<void> {
  for (const engine of engines) {
    // What is in memory is gone when it is closed.
    if (engine.name === "memory") continue;
    await engine.store.close();
    engine.store = await engine.open();
  }
}

/** PostgreSQL takes what is asked at once in any order, which is this one: runs of inserts, of updates, of deletions. */
function inItsOrder(writes: readonly Write[]): Write[][] {
  const runs: Write[][] = [];
  const order = ["insert", "setDone", "delete"];
  for (const write of writes) {
    const run = runs.at(-1);
    const last = run?.at(-1);
    const isAboutOne = run?.some((other) => about(other) !== undefined && about(other) === about(write));
    if (last === undefined || isAboutOne || order.indexOf(write.name) < order.indexOf(last.name)) {
      runs.push([write]);
    } else run?.push(write);
  }
  return runs;
}

/** The to-do or the idempotency key that a write is about. */
const about = (write: Write): TodoId | string | undefined => (write.name === "insert" ? write.key : write.id);

const NAMES = ["memory", "SQLite", ...(whyNoDatabase === undefined ? ["PostgreSQL"] : [])];

test(
  `${NAMES.join(", ")} agree in ${SEQUENCES} sequences of calls`,
  async () => {
    // Opened anew only after a disagreement: that takes longer than a sequence.
    let engines = await openEngines();
    expect(engines.map(({ name }) => name)).toEqual(NAMES);
    /** What a call comes to in all of them; throws when they disagree. */
    const agreed = async <T>(call: (engine: Engine) => Promise<T>): Promise<T | undefined> => {
      const [first, ...others] = await Promise.all(engines.map(call));
      for (const [index, other] of others.entries())
        expect([NAMES[index + 1], other]).toEqual([NAMES[index + 1], first]);
      return first;
    };
    const property = fc.asyncProperty(fc.array(STEP, { maxLength: 40, size: "max" }), async (steps) => {
      try {
        hours += 25;
        const base = (await agreed(({ store }) => empty(store))) ?? 0n;
        for (const step of steps) {
          if (step.name === "wait") hours += step.hours;
          else if (step.name === "reopen") await reopen(engines);
          else await agreed((engine) => take(engine, step, base));
          await agreed(async ({ store }) => (await store.position()).n);
        }
        await agreed(async ({ store }) => (await read(await store.list({}))).todos);
      } catch (error) {
        await close(engines);
        engines = await openEngines();
        throw error;
      }
    });
    await fc.assert(property, { numRuns: SEQUENCES });
    await close(engines);
  },
  30_000 + SEQUENCES * 200,
);

/** Deletes all there is; gives the last id so far. */
async function empty(store: TodoStore): Promise<TodoId> {
  const { todos } = await read(await store.list({}));
  await Promise.all(todos.map(({ id }) => store.delete(id)));
  const { id } = await store.insert("last");
  await store.delete(id);
  return id;
}

/** What comes of a step other than those that are not a store's. */
async function take(
  { store, runs }: Engine,
  step: Exclude<Step, { name: "wait" | "reopen" }>,
  base: TodoId,
): Promise<unknown> {
  switch (step.name) {
    case "write": {
      const outcomes: unknown[] = [];
      for (const run of runs(step.atOnce))
        outcomes.push(...(await Promise.all(run.map((write) => outcome(store, write, base)))));
      return outcomes;
    }
    case "get": {
      const json = await store.get(idFrom(base, step.id));
      return json === undefined ? undefined : decode(json);
    }
    case "list": {
      const { after = 0n, ...query } = step.query;
      const list = await store.list({ ...query, after: idFrom(base, after) });
      return { next: list.next, todos: (await read(list)).todos };
    }
    case "events":
      return eventsSince(store, step.back);
  }
}

async function outcome(store: TodoStore, write: Write, base: TodoId) {
  try {
    if (write.name === "insert") {
      const { id, json } = await store.insert(write.title, write.key);
      return { id, todo: decode(json) };
    }
    const id = idFrom(base, write.id);
    if (write.name === "delete") return await store.delete(id);
    const json = await store.setDone(id, write.done);
    return json === undefined ? undefined : decode(json);
  } catch (error) {
    if (error instanceof Failure) return { failure: error.code, detail: error.detail };
    throw error;
  }
}

/** The last changes, if they are kept still. */
async function eventsSince(store: TodoStore, back: number) {
  const { epoch, n } = await store.position();
  const controller = new AbortController();
  const seen: unknown[] = [];
  for await (const event of store.events({ epoch, n: n - back }, controller.signal)) {
    const todo = event.type === "deleted" ? undefined : decode(event.json);
    seen.push({ n: event.position.n, type: event.type, id: event.id, todo });
    if (event.position.n === n) controller.abort();
  }
  return seen;
}

const idFrom = (base: TodoId, id: TodoId): TodoId => (id >= HUGE ? id : base + id);
