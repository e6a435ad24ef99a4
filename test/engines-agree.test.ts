import { expect, setDefaultTimeout, test } from "bun:test";
import fc from "fast-check";
import type { Awaitable } from "../src/awaitable.ts";
import { ServiceError } from "../src/error.ts";
import { openMemory } from "../src/storage/memory/store.ts";
import { openPostgres } from "../src/storage/postgres/store.ts";
import { openSqlite } from "../src/storage/sqlite/store.ts";
import type { StoreOptions } from "../src/storage/store.ts";
import type { ListQuery, TodoId, TodoStore } from "../src/todo.ts";
import { whyNoDatabase } from "./postgres.ts";
import { skipFor } from "./skip.ts";
import { decode, HOSTILE_TITLES, read, take } from "./store-contract.ts";
import { ageIdempotencyKeys, usePostgres } from "./stores.ts";
import { storePathsIn } from "./temporary.ts";

const hasDatabase = !skipFor(whyNoDatabase);
const SEQUENCES = Number(process.env.TODO_TEST_SEQUENCES ?? 20);
setDefaultTimeout(120_000 + SEQUENCES * 400);
const HOUR = 60 * 60 * 1000;
/** Small limits, so that the sequences reach them. */
const LIMITS = { maxTodos: 6, maxEvents: 12 };

type Write =
  | { readonly name: "insert"; readonly title: string; readonly key: string | undefined }
  | { readonly name: "setDone"; readonly id: TodoId; readonly done: boolean }
  | { readonly name: "delete"; readonly id: TodoId };

/** Ids are relative to the last one before the sequence, except the huge ones. */
type Step =
  | { readonly name: "write"; readonly atOnce: readonly Write[] }
  | { readonly name: "get"; readonly id: TodoId }
  | { readonly name: "list"; readonly query: ListQuery; readonly maxBlobBytes: number | undefined }
  | { readonly name: "events"; readonly back: number }
  | { readonly name: "wait"; readonly hours: number }
  | { readonly name: "reopen" };

const HUGE = 2n ** 53n;
const HOSTILE = [...HOSTILE_TITLES, "\n+{"];
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
    weight: 4,
    arbitrary: fc.record({ name: fc.constant("insert"), title: fc.constantFrom("x", "x", "y"), key: KEY }),
  },
  { weight: 2, arbitrary: fc.record({ name: fc.constant("setDone"), id: ID, done: fc.boolean() }) },
  { weight: 4, arbitrary: fc.record({ name: fc.constant("delete"), id: ID }) },
);
const QUERY = fc.record(
  { after: ID, limit: fc.integer({ min: 1, max: 5 }), done: fc.boolean() },
  { requiredKeys: [] },
);
const LIST = fc.record({
  name: fc.constant("list"),
  query: QUERY,
  maxBlobBytes: fc.constantFrom(undefined, 0, 100),
});
const STEP: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 24,
    arbitrary: fc.record({
      name: fc.constant("write"),
      atOnce: fc.array(WRITE, { minLength: 1, maxLength: 6 }),
    }),
  },
  { weight: 6, arbitrary: fc.record({ name: fc.constant("get"), id: ID }) },
  { weight: 6, arbitrary: LIST },
  { weight: 4, arbitrary: fc.record({ name: fc.constant("events"), back: fc.integer({ min: 1, max: 20 }) }) },
  { weight: 2, arbitrary: fc.record({ name: fc.constant("wait"), hours: fc.constantFrom(1, 12, 24) }) },
  { weight: 1, arbitrary: fc.record({ name: fc.constant("reopen") }) },
);

/** More idempotency keys than the stores keep. Random sequences reach the limit often, but not always. */
const EVICTING: readonly Step[] = ["a", "b", "c", "d", "e", "f", "g"].flatMap((key, index) => [
  { name: "write", atOnce: [{ name: "insert", title: "x", key }] },
  { name: "write", atOnce: [{ name: "delete", id: BigInt(index + 1) }] },
]);

const newPath = storePathsIn();
let hours = 0;

let database: string | undefined;

/** Moves the clock of all stores. PostgreSQL has a clock of its own, so its idempotency keys become older instead. */
async function passHours(passed: number): Promise<void> {
  hours += passed;
  if (database !== undefined) await ageIdempotencyKeys(database, passed);
}

const databases = hasDatabase ? usePostgres() : undefined;

interface Engine {
  readonly name: string;
  store: TodoStore;
  readonly evicted: () => number;
  readonly open: () => Promise<TodoStore>;
  /** Splits writes into runs. Concurrent writes of a run must have the same outcome as consecutive ones. */
  readonly runs: (writes: readonly Write[]) => Write[][];
}

async function openEngines(): Promise<Engine[]> {
  const path = newPath();
  const url = await databases?.newDatabase();
  database = url;
  const engines = [
    openEngine("memory", openMemory, (writes) => [[...writes]]),
    openEngine("SQLite", (options) => openSqlite(path, options), oneKeyAtATime),
  ];
  if (url !== undefined)
    engines.push(openEngine("PostgreSQL", (options) => openPostgres(url, options), inItsOrder));
  return Promise.all(engines);
}

async function openEngine(
  name: string,
  openStore: (options: StoreOptions) => Awaitable<TodoStore>,
  runs: Engine["runs"],
): Promise<Engine> {
  let evicted = 0;
  const onIdempotencyKeysEvicted = (count: number): void => {
    evicted += count;
  };
  const open = async () => openStore({ ...LIMITS, now: () => hours * HOUR, onIdempotencyKeysEvicted });
  return { name, store: await open(), open, evicted: () => evicted, runs };
}

const close = (engines: readonly Engine[]) => Promise.all(engines.map(({ store }) => store.close()));

async function reopen(engines: readonly Engine[]): Promise<void> {
  for (const engine of engines) {
    // A memory store loses its contents when it is closed.
    if (engine.name === "memory") continue;
    await engine.store.close();
    engine.store = await engine.open();
  }
}

/** SQLite evicts keys at the end of a batch. Until then, a batch finds keys that consecutive writes would have evicted. */
function oneKeyAtATime(writes: readonly Write[]): Write[][] {
  return runsOf(writes, (run, write) => {
    const key = toKey(write);
    return key === undefined || run.every((other) => (toKey(other) ?? key) === key);
  });
}

/** PostgreSQL runs a batch in this order: inserts, updates, deletions. A batch has one write per to-do or key. */
function inItsOrder(writes: readonly Write[]): Write[][] {
  const order = ["insert", "setDone", "delete"];
  return oneKeyAtATime(writes).flatMap((sameKey) =>
    runsOf(sameKey, (run, write) => {
      const isAboutOne = run.some((other) => about(other) !== undefined && about(other) === about(write));
      return !isAboutOne && run.every(({ name }) => order.indexOf(name) <= order.indexOf(write.name));
    }),
  );
}

/** Splits writes into runs. A write joins the run before it if `mayJoin` allows it. */
function runsOf(
  writes: readonly Write[],
  mayJoin: (run: readonly Write[], write: Write) => boolean,
): Write[][] {
  const runs: Write[][] = [];
  for (const write of writes) {
    const run = runs.at(-1);
    if (run === undefined || !mayJoin(run, write)) runs.push([write]);
    else run.push(write);
  }
  return runs;
}

const toKey = (write: Write): string | undefined => (write.name === "insert" ? write.key : undefined);

/** Returns the to-do or the idempotency key of a write. */
const about = (write: Write): TodoId | string | undefined => (write.name === "insert" ? write.key : write.id);

const NAMES = ["memory", "SQLite", ...(hasDatabase ? ["PostgreSQL"] : [])];

test(`${NAMES.join(", ")} return the same results in ${SEQUENCES} sequences of calls`, async () => {
  // Reopening takes longer than a sequence, so it is done only after a disagreement.
  let engines = await openEngines();
  expect(engines.map(({ name }) => name)).toEqual(NAMES);
  const agreed = async <T>(call: (engine: Engine) => Promise<T>): Promise<T | undefined> => {
    const [first, ...others] = await Promise.all(engines.map(call));
    for (const [index, other] of others.entries())
      expect([NAMES[index + 1], other]).toEqual([NAMES[index + 1], first]);
    return first;
  };
  const property = fc.asyncProperty(fc.array(STEP, { maxLength: 40, size: "max" }), async (steps) => {
    try {
      await passHours(25);
      const base = (await agreed(({ store }) => empty(store))) ?? 0n;
      for (const step of steps) {
        if (step.name === "wait") await passHours(step.hours);
        else if (step.name === "reopen") await reopen(engines);
        else await agreed((engine) => run(engine, step, base));
        await agreed(async ({ store, evicted }) => [(await store.position()).sequence, evicted()]);
      }
      await agreed(async ({ store }) => (await read(await store.list({}))).todos);
    } catch (error) {
      await close(engines);
      engines = await openEngines();
      throw error;
    }
  });
  await fc.assert(property, { numRuns: SEQUENCES, examples: [[[...EVICTING]]] });
  expect(await agreed(async ({ evicted }) => evicted())).toBeGreaterThan(0);
  await close(engines);
});

/** Deletes all to-dos. Returns the last id assigned so far. */
async function empty(store: TodoStore): Promise<TodoId> {
  const { todos } = await read(await store.list({}));
  await Promise.all(todos.map(({ id }) => store.delete(id)));
  const { id } = await store.insert("last");
  await store.delete(id);
  return id;
}

async function run(
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
      const list = await store.list({ ...query, after: idFrom(base, after) }, step.maxBlobBytes);
      return { next: list.next, todos: (await read(list)).todos };
    }
    case "events": {
      // The last changes, if the store still has them.
      const { epoch, sequence } = await store.position();
      return take(store, { epoch, sequence: sequence - step.back }, step.back);
    }
  }
}

async function outcome(store: TodoStore, write: Write, base: TodoId) {
  try {
    if (write.name === "insert") {
      const { id, json } = await store.insert(write.title, write.key);
      return { id, todo: decode(json) };
    }
    const id = idFrom(base, write.id);
    if (write.name === "delete") return (await store.delete(id)).existed;
    const { json } = await store.setDone(id, write.done);
    return json === undefined ? undefined : decode(json);
  } catch (error) {
    if (error instanceof ServiceError) return { failure: error.code, detail: error.detail };
    throw error;
  }
}

const idFrom = (base: TodoId, id: TodoId): TodoId => (id >= HUGE ? id : base + id);
