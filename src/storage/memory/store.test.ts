import { heapStats } from "bun:jsc";
import { expect, test } from "bun:test";
import fc from "fast-check";
import {
  decode,
  expectRenewed,
  HOSTILE_TITLES,
  read,
  storeContract,
  useKeys,
} from "../../../test/store-contract.ts";
import { MAX_EXPIRED_KEYS } from "../../credential/key.ts";
import { hashToken } from "../../credential/token.ts";
import { ServiceError } from "../../error.ts";
import { type ListQuery, MAX_TODO_ID, type Todo, type TodoId, type TodoStore } from "../../todo.ts";
import { openMemory } from "./store.ts";

storeContract("memory", async (options) => openMemory(options));

async function filled(count: number): Promise<TodoStore> {
  const store = openMemory();
  for (let i = 1; i <= count; i++) await store.insert(`to-do ${i}`);
  return store;
}

const todosOf = async (store: TodoStore): Promise<Todo[]> => (await read(await store.list({}))).todos;

test("openMemory uses a new epoch each time", async () => {
  const [one, other] = [await openMemory().position(), await openMemory().position()];
  expect(one.epoch).not.toBe(other.epoch);
});

test("insert fails after the greatest id and never wraps around", async () => {
  const store = openMemory({ lastId: MAX_TODO_ID - 1n });
  const { id, json } = await store.insert("last");
  expect(id).toBe(MAX_TODO_ID);
  expect(decode(json).id).toBe(18_446_744_073_709_551_615n);
  expect(() => store.insert("more")).toThrow(ServiceError);
  expect(await todosOf(store)).toEqual([{ id: MAX_TODO_ID, title: "last", done: false }]);
});

test("a new API key deletes the expired keys that exceed the limit", async () => {
  const { keys } = openMemory();
  const key = (id: number) => ({ id: `${id}`, name: `${id}`, tokenHash: hashToken(`${id}`), createdAt: 0 });
  for (let i = 0; i <= MAX_EXPIRED_KEYS; i++) keys.insert({ ...key(i), expiresAt: i, scope: "read" });
  await keys.insert({ ...key(-1), createdAt: MAX_EXPIRED_KEYS, scope: "read" });
  const ids = (await keys.list()).map(({ id }) => id);
  expect([ids.length, ids.slice(0, 2)]).toEqual([MAX_EXPIRED_KEYS + 1, ["1", "2"]]);
  expect(await keys.find(hashToken("0"))).toBeUndefined();
});

test("an expired idempotency key makes room without an eviction", async () => {
  let now = 0;
  let evicted = 0;
  const onIdempotencyKeysEvicted = (count: number): void => {
    evicted += count;
  };
  const store = openMemory({ maxTodos: 1, now: () => now, onIdempotencyKeysEvicted });
  for (const key of ["first", "second"]) {
    const { id } = await store.insert("a", key);
    await store.delete(id);
    now += 24 * 3_600_000;
  }
  expect(evicted).toBe(0);
});

test("a clock that jumps forward and back removes two idempotency keys per new key at most", async () => {
  let now = 0;
  const store = openMemory({ now: () => now });
  const insert = async (key: string): Promise<TodoId> => (await store.insert("x", key)).id;
  for (const key of "abcdef") await insert(key);
  now += 48 * 3_600_000;
  expect([await insert("later"), await insert("f")]).toEqual([7n, 8n]);
  now = 1;
  expect([await insert("e"), await insert("f"), await insert("a")]).toEqual([5n, 8n, 9n]);
});

test("list of many segments equals the stored to-dos after any deletions", async () => {
  const store = await filled(5000);
  const model = new Map<TodoId, Todo>((await todosOf(store)).map((todo) => [todo.id, todo]));
  const ids = fc.sample(fc.bigInt({ min: 1n, max: 5000n }), { numRuns: 9000, seed: 7 });
  for (const [turn, id] of ids.entries()) {
    const todo = model.get(id);
    if (turn % 4 === 0 && todo !== undefined) model.set(id, { ...todo, done: !todo.done });
    else model.delete(id);
    if (turn % 4 === 0) await store.setDone(id, !todo?.done);
    else await store.delete(id);
    if (turn % 100 === 0) await store.list({});
  }
  for (let i = 0; i < 3000; i++) {
    const { id, json } = await store.insert("later");
    model.set(id, decode(json));
  }
  expect(await todosOf(store)).toEqual([...model.values()]);
  for (const id of [1n, 768n, 769n, 4999n, 5001n, 8000n]) {
    const json = await store.get(id);
    expect(json === undefined ? undefined : decode(json)).toEqual(model.get(id));
  }
});

test("list of more than a megabyte is a snapshot during writes", async () => {
  const store = await filled(30_000);
  const before = await todosOf(store);
  const list = await store.list({});
  expect(list.json instanceof Blob).toBe(false);
  const reading = read({ ...list, json: withWrites(list.json, store) });
  expect((await reading).todos).toEqual(before);
  expect((await store.position()).sequence).toBeGreaterThan(list.position.sequence);
});

/** Yields the chunks of a list and changes both ends and the middle of the store before each. */
async function* withWrites(pieces: Awaited<ReturnType<TodoStore["list"]>>["json"], store: TodoStore) {
  if (pieces instanceof Blob || pieces instanceof Uint8Array) throw new Error("the list is in one piece");
  let id = 30_000n;
  for await (const piece of pieces) {
    await store.setDone(id, true);
    await store.setDone(15_000n, id % 2n === 0n);
    await store.delete(30_001n - id);
    await store.insert("new");
    id--;
    yield piece;
  }
}

test("list of filtered to-dos is a snapshot too", async () => {
  const store = await filled(3000);
  for (let id = 1n; id <= 3000n; id += 2n) await store.setDone(id, true);
  const list = await store.list({ done: true });
  for (let id = 1n; id <= 3000n; id++) await store.delete(id);
  const { todos } = await read(list);
  expect(todos.map(({ id }) => id)).toEqual(Array.from({ length: 1500 }, (_, i) => BigInt(2 * i + 1)));
  expect(await todosOf(store)).toEqual([]);
});

test("list of segments that reach their limit of bytes equals the stored to-dos", async () => {
  const store = openMemory();
  const model = new Map<TodoId, Todo>();
  for (let id = 1n; id <= 1000n; id++) {
    const todo = { id, title: "x".repeat(Number(id % 121n) || 120), done: false };
    await store.insert(todo.title);
    model.set(id, todo);
  }
  for (let id = 1n; id <= 1000n; id++) {
    if (id % 3n !== 0n && model.delete(id)) await store.delete(id);
  }
  expect(await todosOf(store)).toEqual([...model.values()]);
  for (const [id, todo] of model) expect(decode((await store.get(id)) ?? "")).toEqual(todo);
});

test("list returns the cached Blob until the next write", async () => {
  const store = await filled(1000);
  const { json } = await store.list({});
  expect((await store.list({})).json).toBe(json);
  await store.setDone(1n, true);
  expect((await store.list({})).json).not.toBe(json);
});

test("delete frees memory even if scattered to-dos remain", async () => {
  const before = await bytesHeld();
  const store = await filled(300_000);
  const full = (await bytesHeld()) - before;
  for (let id = 1n; id <= 300_000n; id++) if (id % 1000n !== 0n) await store.delete(id);
  expect((await bytesHeld()) - before).toBeLessThan(full / 10);
  expect((await todosOf(store)).map(({ id }) => id)).toEqual(
    Array.from({ length: 300 }, (_, i) => BigInt((i + 1) * 1000)),
  );
});

test("a use renews the key of a browser, up to the expiry of its parent", async () => {
  const { keys } = openMemory();
  await useKeys(keys);
  await expectRenewed(keys);
});

async function bytesHeld(): Promise<number> {
  await Bun.sleep(0);
  Bun.gc(true);
  const { heapSize, extraMemorySize } = heapStats();
  return heapSize + extraMemorySize;
}

// The other stores return the same results as this one, as test/engines-agree.test.ts checks.
test("any sequence of calls returns the same results as a simple model", async () => {
  const property = fc.asyncProperty(fc.array(CALL, { maxLength: 200, size: "max" }), async (calls) => {
    const store = openMemory();
    const model = new Model();
    for (const call of calls) expect(await apply(store, call)).toEqual(model.apply(call));
    expect(await todosOf(store)).toEqual(model.list({}));
    expect((await store.position()).sequence).toBe(model.n);
  });
  await fc.assert(property);
});

type Call =
  | { readonly name: "insert"; readonly title: string }
  | { readonly name: "get"; readonly id: TodoId }
  | { readonly name: "delete"; readonly id: TodoId }
  | { readonly name: "setDone"; readonly id: TodoId; readonly done: boolean }
  | { readonly name: "list"; readonly query: ListQuery; readonly maxBlobBytes?: number | undefined };

const ID = fc.bigInt({ min: 0n, max: 30n });
const TITLE = fc.oneof(
  fc.string({ unit: "binary", minLength: 1, maxLength: 120 }),
  fc.constantFrom(...HOSTILE_TITLES),
);
const QUERY = fc.record(
  { after: ID, limit: fc.integer({ min: 1, max: 8 }), done: fc.boolean() },
  { requiredKeys: [] },
);
const LIST = fc.record({
  name: fc.constant("list"),
  query: QUERY,
  maxBlobBytes: fc.constantFrom(undefined, 0, 100),
});
const CALL: fc.Arbitrary<Call> = fc.oneof(
  { weight: 4, arbitrary: fc.record({ name: fc.constant("insert"), title: TITLE }) },
  { weight: 2, arbitrary: fc.record({ name: fc.constant("setDone"), id: ID, done: fc.boolean() }) },
  { weight: 1, arbitrary: fc.record({ name: fc.constant("get"), id: ID }) },
  { weight: 2, arbitrary: fc.record({ name: fc.constant("delete"), id: ID }) },
  { weight: 1, arbitrary: LIST },
);

/** A model of a store. */
class Model {
  readonly #todos = new Map<TodoId, Todo>();
  #lastId = 0n;
  n = 0;

  apply(call: Call): unknown {
    if (call.name === "list") return this.list(call.query);
    if (call.name === "insert") {
      this.n++;
      return this.#set({ id: ++this.#lastId, title: call.title, done: false });
    }
    const todo = this.#todos.get(call.id);
    if (todo === undefined) return call.name === "delete" ? false : undefined;
    if (call.name === "get") return todo;
    if (call.name === "delete" || todo.done !== call.done) this.n++;
    return call.name === "delete" ? this.#todos.delete(call.id) : this.#set({ ...todo, done: call.done });
  }

  list({ after = 0n, limit = Number.POSITIVE_INFINITY, done }: ListQuery): Todo[] {
    const all = [...this.#todos.values()];
    return all.filter((todo) => todo.id > after && (done ?? todo.done) === todo.done).slice(0, limit);
  }

  #set(todo: Todo): Todo {
    this.#todos.set(todo.id, todo);
    return todo;
  }
}

async function apply(store: TodoStore, call: Call): Promise<unknown> {
  if (call.name === "insert") return decode((await store.insert(call.title)).json);
  if (call.name === "list") return (await read(await store.list(call.query, call.maxBlobBytes))).todos;
  if (call.name === "delete") return (await store.delete(call.id)).existed;
  const json =
    call.name === "get" ? await store.get(call.id) : (await store.setDone(call.id, call.done)).json;
  return json === undefined ? undefined : decode(json);
}
