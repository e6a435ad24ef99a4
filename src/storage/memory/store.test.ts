import { heapStats } from "bun:jsc";
import { expect, test } from "bun:test";
import fc from "fast-check";
import { decode, expectRenewed, read, storeContract, useKeys } from "../../../test/store-contract.ts";
import { MAX_EXPIRED_KEYS } from "../../credential/key.ts";
import { hashToken } from "../../credential/token.ts";
import { ServiceError } from "../../error.ts";
import { MAX_TODO_ID, type Todo, type TodoId, type TodoStore } from "../../todo.ts";
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
