import { heapStats } from "bun:jsc";
import { expect, test } from "bun:test";
import fc from "fast-check";
import { decode, read, storeContract } from "../../../test/store-contract.ts";
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

test("expired idempotency keys make room without an eviction, also after one of them is used again", async () => {
  let now = 0;
  let evicted = 0;
  const onIdempotencyKeysEvicted = (count: number): void => {
    evicted += count;
  };
  const store = openMemory({ maxTodos: 3, now: () => now, onIdempotencyKeysEvicted });
  const use = async (key: string): Promise<TodoId> => {
    const { id } = await store.insert("x", key);
    await store.delete(id);
    return id;
  };
  for (const key of "abc") await use(key);
  now += 24 * 3_600_000;
  for (const key of "ade") await use(key);
  expect(evicted).toBe(0);
  // The new key takes the place of the oldest one.
  expect([await use("f"), await use("d"), evicted]).toEqual([7n, 5n, 1]);
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

async function bytesHeld(): Promise<number> {
  await Bun.sleep(0);
  Bun.gc(true);
  const { heapSize, extraMemorySize } = heapStats();
  return heapSize + extraMemorySize;
}
