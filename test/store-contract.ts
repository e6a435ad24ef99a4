import { afterEach, beforeEach, describe, expect, test } from "bun:test";
import type { Awaitable } from "../src/awaitable.ts";
import type { Key, KeyStore, StoredKey } from "../src/credential/key.ts";
import { hashToken } from "../src/credential/token.ts";
import { ServiceError } from "../src/error.ts";
import { parseMadeWith } from "../src/storage/records/key-row.ts";
import type { Store } from "../src/storage/store.ts";
import type {
  ListQuery,
  Position,
  Todo,
  TodoEvent,
  TodoId,
  TodoJson,
  TodoList,
  TodoStore,
} from "../src/todo.ts";
import { eachEvent } from "./store.ts";

export type OpenStore = (options: {
  readonly maxTodos: number;
  readonly maxEvents: number;
  readonly onIdempotencyKeysEvicted?: (count: number) => void;
}) => Promise<Store>;

const LIMITS = { maxTodos: 1000, maxEvents: 100 };

export function storeContract(engine: string, openStore: OpenStore): void {
  describe(`${engine} store`, () => {
    let store: Store;
    beforeEach(async () => {
      store = await openStore(LIMITS);
    });
    afterEach(async () => {
      await store.close();
    });

    const insert = async (title: string): Promise<Todo> => decode((await store.insert(title)).json);
    const list = async (query: ListQuery = {}): Promise<Todo[]> =>
      (await read(await store.list(query))).todos;

    test("insert stores any title unchanged", async () => {
      for (const title of HOSTILE_TITLES) {
        const { id } = await insert(title);
        const found = await store.get(id);
        expect(found === undefined ? undefined : decode(found).title).toBe(title);
        expect((await list({ after: id - 1n }))[0]?.title).toBe(title);
        await store.setDone(id, true);
        expect(await list({ after: id - 1n })).toEqual([{ id, title, done: true }]);
      }
    });

    test("insert into a full store fails and changes neither the id counter nor the position", async () => {
      await Promise.all(Array.from({ length: LIMITS.maxTodos }, () => store.insert("x")));
      const before = await store.position();
      expect(await failureOf(() => store.insert("y"))).toBe("store_full");
      expect(await store.position()).toEqual(before);
      await store.delete(1n);
      expect((await insert("y")).id).toBe(BigInt(LIMITS.maxTodos) + 1n);
    });

    describe("with room for three idempotency keys", () => {
      let limited: Store;
      let evicted: number;
      beforeEach(async () => {
        evicted = 0;
        const onIdempotencyKeysEvicted = (count: number) => {
          evicted += count;
        };
        limited = await openStore({ ...LIMITS, maxTodos: 3, onIdempotencyKeysEvicted });
      });
      afterEach(async () => {
        await limited.close();
      });

      const insertAndDelete = async (key: string): Promise<TodoId> => {
        const { id } = await limited.insert("x", key);
        await limited.delete(id);
        return id;
      };

      test("insert with a fourth key evicts the oldest key", async () => {
        for (const key of ["a", "b", "c"]) await insertAndDelete(key);
        expect([await insertAndDelete("a"), evicted]).toEqual([1n, 0]);
        expect([await insertAndDelete("d"), evicted]).toEqual([4n, 1]);
        for (const [key, id] of [
          ["b", 2n],
          ["c", 3n],
          ["d", 4n],
        ] as const)
          expect((await limited.insert("x", key)).id).toBe(id);
        expect([await insertAndDelete("a"), evicted]).toEqual([5n, 2]);
        expect(await failureOf(() => limited.insert("y", "c"))).toBe("idempotency_key_reused");
      });

      test("concurrent inserts with new keys evict one old key each", async () => {
        for (const key of ["a", "b", "c"]) await insertAndDelete(key);
        const inserts = ["d", undefined, "e"].map((key) => limited.insert("x", key));
        const ids = (await Promise.all(inserts)).map(({ id }) => id);
        expect([ids, evicted]).toEqual([[4n, 5n, 6n], 2]);
        for (const id of ids) await limited.delete(id);
        for (const [key, id] of [
          ["c", 3n],
          ["d", 4n],
          ["e", 6n],
          ["a", 7n],
          ["b", 8n],
        ] as const)
          expect(await insertAndDelete(key)).toBe(id);
      });

      test("concurrent inserts with one key create one to-do", async () => {
        const inserts = ["x", "x", "y", "x"].map((title) => failureOf(() => limited.insert(title, "a")));
        const failures = await Promise.all(inserts);
        expect(failures).toEqual([undefined, undefined, "idempotency_key_reused", undefined]);
        expect(limited.count).toBe(1);
      });

      test("a failed insert evicts no key", async () => {
        for (const key of ["a", "b", "c"]) await limited.insert("x", key);
        expect(await failureOf(() => limited.insert("x", "d"))).toBe("store_full");
        expect(await failureOf(() => limited.insert("y", "a"))).toBe("idempotency_key_reused");
        expect([(await limited.insert("x", "a")).id, evicted]).toEqual([1n, 0]);
      });
    });

    test("count returns the number of to-dos in the list", async () => {
      expect(store.count).toBe(0);
      await Promise.all(["a", "b", "c"].map((title) => store.insert(title)));
      await store.setDone(1n, true);
      await store.delete(2n);
      await store.delete(2n);
      expect([store.count, (await list()).length]).toEqual([2, 2]);
    });

    test("concurrent setDone and delete calls delete the to-do", async () => {
      const { id } = await insert("a");
      await Promise.all([store.setDone(id, true), store.delete(id), store.setDone(id, false)]);
      expect(await list()).toEqual([]);
    });

    test("results of get and list do not change when the store changes", async () => {
      const { id } = await insert("a");
      const json = await store.get(id);
      const whole = await store.list({});
      await store.setDone(id, true);
      await store.delete(id);
      expect(json === undefined ? undefined : decode(json).done).toBe(false);
      expect((await read(whole)).todos).toEqual([{ id, title: "a", done: false }]);
    });

    test("list returns a Blob up to maxBlobBytes, and chunks above it", async () => {
      for (let i = 1; i <= 100; i++) await insert("😀".repeat(120));
      for (const query of [{}, { limit: 90 }, { after: 5n, limit: 90 }, { done: false, limit: 90 }]) {
        const whole = await store.list(query);
        if (!(whole.json instanceof Blob)) throw new Error("a short list is not a Blob");
        const { size } = whole.json;
        expect((await store.list(query, size)).json).toBeInstanceOf(Blob);
        const list = await store.list(query, size - 1);
        if (list.json instanceof Blob || list.json instanceof Uint8Array)
          throw new Error("a long list is in one piece");
        await store.setDone(6n, true);
        const pieces: Uint8Array[] = await Array.fromAsync(list.json);
        expect(Buffer.concat(pieces).equals(await whole.json.bytes())).toBe(true);
        expect([list.position, list.next]).toEqual([whole.position, whole.next]);
        await store.setDone(6n, false);
      }
    });

    test("a write returns the position of its event, or the current one if it changes nothing", async () => {
      const { id, position: created } = await store.insert("a", "key");
      const { position: updated } = await store.setDone(id, true);
      expect(updated).toEqual({ ...created, sequence: created.sequence + 1 });
      const unchanged = [store.insert("a", "key"), store.setDone(id, true), store.setDone(9n, true)];
      for (const write of [...unchanged, store.delete(9n)]) expect((await write).position).toEqual(updated);
      const { position: deleted } = await store.delete(id);
      expect(deleted).toEqual({ ...created, sequence: created.sequence + 2 });
      expect((await store.insert("a", "key")).position).toEqual(deleted);
      expect((await store.delete(2n ** 64n - 1n)).position).toEqual(deleted);
      expect((await store.setDone(2n ** 64n - 1n, true)).position).toEqual(deleted);
    });

    test("each of many concurrent writes returns the position of its event", async () => {
      await Promise.all(Array.from({ length: 20 }, () => store.insert("old")));
      const start = await store.position();
      const writes = upTo(20).flatMap((id) => [
        store.insert("new"),
        id % 2n === 0n ? store.setDone(id, true) : store.delete(id),
      ]);
      const ends = (await Promise.all(writes)).map(({ position }) => position.sequence);
      const idOf = new Map((await take(store, start, writes.length)).map(({ n, id }) => [n, id]));
      const ids = upTo(20).flatMap((id) => [20n + id, id]);
      expect(ends.map((n) => idOf.get(n))).toEqual(ids);
    });

    test("events include missed and new changes in order", async () => {
      const start = await store.position();
      const { id } = await insert("a");
      const seen = take(store, start, 4);
      await store.setDone(id, true);
      await insert("b");
      await store.delete(id);
      expect(await seen).toEqual([
        { n: start.sequence + 1, type: "created", id, todo: { id, title: "a", done: false } },
        { n: start.sequence + 2, type: "updated", id, todo: { id, title: "a", done: true } },
        { n: start.sequence + 3, type: "created", id: 2n, todo: { id: 2n, title: "b", done: false } },
        { n: start.sequence + 4, type: "deleted", id, todo: undefined },
      ]);
    });

    test("events end immediately for a position that is unknown or no longer stored", async () => {
      const start = await store.position();
      for (let i = 0; i <= LIMITS.maxEvents; i++) await store.insert("x");
      const { epoch, sequence: n } = await store.position();
      expect(await take(store, start, 1)).toEqual([]);
      expect(await take(store, { epoch, sequence: n + 1 }, 1)).toEqual([]);
      expect(await take(store, { epoch, sequence: -1 }, 1)).toEqual([]);
      expect(await take(store, { epoch: "another", sequence: n }, 1)).toEqual([]);
      expect(await take(store, { epoch, sequence: n - LIMITS.maxEvents }, LIMITS.maxEvents)).toHaveLength(
        100,
      );
    });

    test("events end for a subscriber that falls behind or aborts", async () => {
      const start = await store.position();
      const controller = new AbortController();
      const events = eachEvent(store, start, controller.signal);
      await store.insert("x");
      expect((await events.next()).value).toMatchObject({ type: "created", id: 1n });
      for (let i = 0; i <= LIMITS.maxEvents; i++) await store.insert("x");
      expect((await events.next()).done).toBe(true);

      const waiting = eachEvent(store, await store.position(), controller.signal);
      const next = waiting.next();
      controller.abort();
      expect((await next).done).toBe(true);
    });

    test("close ends the events of every subscriber", async () => {
      const closing = await openStore(LIMITS);
      const start = await closing.position();
      const [waiting, behind] = [eachEvent(closing, start), eachEvent(closing, start)];
      const created = [waiting.next(), behind.next()];
      await closing.insert("a");
      for (const next of created) expect((await next).value).toMatchObject({ type: "created", id: 1n });
      await closing.insert("b");
      expect((await waiting.next()).value).toMatchObject({ type: "created", id: 2n });
      const starting = eachEvent(closing, await closing.position());
      const pending = [waiting.next(), starting.next()];
      await closing.close();
      for (const next of [...pending, behind.next()]) expect((await next).done).toBe(true);
    });

    test("close completes earlier requests", async () => {
      const closing = await openStore(LIMITS);
      const inserts = Promise.all(["a", "b", "c"].map((title) => closing.insert(title)));
      await closing.close();
      expect((await inserts).map(({ id }) => id)).toEqual(upTo(3));
    });
  });

  keyContract(`${engine} store's API keys`, async () => {
    const store = await openStore(LIMITS);
    return { keys: store.keys, close: () => store.close() };
  });
}

/** @param newStore returns a function that opens the same store each time; the first time, it is empty */
export function persistenceContract(engine: string, newStore: () => Promise<() => Promise<Store>>): void {
  describe(`${engine} store that is opened again`, () => {
    test("has its to-dos, events, position and idempotency keys, and continues the ids", async () => {
      const open = await newStore();
      const first = await open();
      for (const title of ["a", "b", "\u0000\u2028😀"]) await first.insert(title, `key of ${title}`);
      await first.setDone(2n, true);
      await first.delete(3n);
      const before = await read(await first.list({}));
      await first.close();

      const second = await open();
      expect(await read(await second.list({}))).toEqual(before);
      expect(await second.position()).toEqual(before.position);
      expect((await second.insert("a", "key of a")).id).toBe(1n);
      expect(await failureOf(() => second.insert("c", "key of b"))).toBe("idempotency_key_reused");
      expect((await second.insert("d")).id).toBe(4n);
      const events = await take(second, { ...before.position, sequence: 0 }, 6);
      expect(events.map(({ n, type, id, todo }) => [n, type, id, todo?.title])).toEqual([
        [1, "created", 1n, "a"],
        [2, "created", 2n, "b"],
        [3, "created", 3n, "\u0000\u2028😀"],
        [4, "updated", 2n, "b"],
        [5, "deleted", 3n, undefined],
        [6, "created", 4n, "d"],
      ]);
      await second.close();
    });

    test("has its API keys with their last use, and no deleted ones", async () => {
      const open = await newStore();
      const first = await open();
      for (const id of ["a", "b", "c"]) await first.keys.insert(storedKey(id));
      await first.keys.replace("a", 50, storedKey("d"));
      await first.keys.delete("b");
      for (const usedAt of [20, 30]) first.keys.recordUse("c", usedAt);
      const before = await first.keys.list();
      expect(before.map(({ id, expiresAt, lastUsedAt }) => [id, expiresAt, lastUsedAt])).toEqual([
        ["a", 50, undefined],
        ["c", undefined, 30],
        ["d", undefined, undefined],
      ]);
      await first.close();

      const second = await open();
      expect(await second.keys.list()).toEqual(before);
      const found = await Promise.all(["a", "b", "c", "d"].map((id) => second.keys.find(hashOf(id))));
      expect(found.map((key) => key?.id)).toEqual(["a", undefined, "c", "d"]);
      await second.close();
    });
  });
}

export function keyContract(
  what: string,
  openKeys: () => Promise<{ readonly keys: KeyStore; readonly close: () => Awaitable<void> }>,
): void {
  describe(what, () => {
    let opened: Awaited<ReturnType<typeof openKeys>>;
    let keys: KeyStore;
    beforeEach(async () => {
      opened = await openKeys();
      keys = opened.keys;
    });
    afterEach(async () => {
      await opened.close();
    });

    const found = async (id: string): Promise<StoredKey | undefined> => {
      const key = await keys.find(hashOf(id));
      return key === undefined ? undefined : { ...key, tokenHash: Buffer.from(key.tokenHash) };
    };
    const ids = async (): Promise<string[]> => (await keys.list()).map(({ id }) => id);

    test("find returns an inserted key only by its hash", async () => {
      const all = [
        storedKey("a"),
        storedKey("b", { expiresAt: 1 }),
        storedKey("c", { lastUsedAt: 5 }),
        storedKey("d", { expiresAt: 90, lifetime: 80, scope: "read" }),
        storedKey("e", parseMadeWith("key:a")),
        storedKey("f", parseMadeWith("code:user:x:ann: 😀")),
      ];
      for (const key of all) expect(await keys.insert(key)).toBe(true);
      for (const key of all) expect(await found(key.id)).toEqual(key);
      expect(await keys.find(hashToken("another"))).toBeUndefined();
      expect(await keys.find(Buffer.from("a"))).toBeUndefined();
      expect(await keys.find(Buffer.alloc(0))).toBeUndefined();
    });

    test("insert stores any name unchanged", async () => {
      for (const name of HOSTILE_NAMES) {
        const key = storedKey(`a${name}`, { name });
        await keys.insert(key);
        expect(await found(key.id)).toEqual(key);
        expect((await keys.list()).at(-1)?.name).toBe(name);
        expect(await keys.insert(storedKey(`b${name}`, { name }))).toBe(false);
      }
    });

    test("list returns all keys, including expired keys, without hashes and ordered by creation time", async () => {
      const latest = storedKey("c", { createdAt: 30 });
      const earliest = storedKey("a", { createdAt: 10, expiresAt: 11, scope: "read" });
      const [same, sameLater] = [storedKey("z", { createdAt: 20 }), storedKey("b", { createdAt: 20 })];
      for (const key of [latest, earliest, same, sameLater]) await keys.insert(key);
      expect(await keys.list()).toEqual([earliest, same, sameLater, latest].map(withoutHash));
    });

    test("results of find and list do not change when the store changes", async () => {
      await keys.insert(storedKey("a"));
      const [key, list] = [await found("a"), await keys.list()];
      keys.recordUse("a", 50);
      await keys.replace("a", 60, storedKey("b"));
      await keys.delete("a");
      expect([key, list]).toEqual([storedKey("a"), [withoutHash(storedKey("a"))]]);
    });

    test("concurrent inserts of one name create one key", async () => {
      const inserts = Array.from({ length: 20 }, (_, i) => keys.insert(storedKey(`${i}`, { name: "ci" })));
      const outcomes = await Promise.all(inserts);
      expect(outcomes.filter((inserted) => inserted)).toHaveLength(1);
      expect(await ids()).toEqual([`${outcomes.indexOf(true)}`]);
    });

    test("replace sets the expiry of a key and of what was made with it, and adds the successor", async () => {
      await keys.insert(storedKey("a", { name: "ci", lastUsedAt: 3 }));
      await keys.insert(storedKey("c", parseMadeWith("key:a")));
      const successor = storedKey("b", { name: "ci", createdAt: 10, expiresAt: 500, scope: "read" });
      expect(await keys.replace("a", 50, successor)).toBe(true);
      expect(await found("a")).toEqual(storedKey("a", { name: "ci", lastUsedAt: 3, expiresAt: 50 }));
      expect(await found("b")).toEqual(successor);
      expect(await keys.replace("absent", 50, storedKey("d"))).toBe(false);
      const ends = (await keys.list()).map(({ id, expiresAt }) => [id, expiresAt]);
      expect(ends).toEqual([
        ["a", 50],
        ["c", 50],
        ["b", 500],
      ]);
    });

    test("concurrent replace and delete create a successor only if the key still exists", async () => {
      await keys.insert(storedKey("a"));
      const [first, replaced, second] = await Promise.all([
        keys.delete("a"),
        keys.replace("a", 50, storedKey("b")),
        keys.delete("a"),
      ]);
      expect([first, second].filter((deleted) => deleted)).toHaveLength(1);
      expect(await ids()).toEqual(replaced ? ["b"] : []);
    });

    test("delete removes a key and what was made with it, and no other", async () => {
      for (const id of ["a", "b"]) await keys.insert(storedKey(id));
      for (const id of ["c", "d"]) await keys.insert(storedKey(id, parseMadeWith("key:a")));
      expect(await keys.delete("a")).toBe(true);
      expect([await keys.delete("a"), await keys.delete("absent")]).toEqual([false, false]);
      expect(await found("a")).toBeUndefined();
      expect(await found("b")).toEqual(storedKey("b"));
      expect(await ids()).toEqual(["b"]);
    });

    test("insert uses up a link once", async () => {
      await keys.insert(storedKey("link", parseMadeWith("code:user:x:ann")));
      const device = (id: string) => storedKey(id, parseMadeWith("user:x:ann"));
      const inserts = ["a", "b", "c"].map((id) => keys.insert(device(id), { link: "link" }));
      expect((await Promise.all(inserts)).filter((inserted) => inserted)).toHaveLength(1);
      expect(await ids()).toHaveLength(1);
    });

    test("rename changes the name of a key", async () => {
      for (const id of ["a", "b"]) await keys.insert(storedKey(id));
      expect([await keys.rename("a", "c"), await keys.rename("a", "b")]).toEqual([true, false]);
      expect(await found("a")).toEqual({ ...storedKey("a"), name: "c" });
    });

    test("recordUse sets the latest use in the list", async () => {
      for (const id of ["a", "b"]) await keys.insert(storedKey(id));
      for (const usedAt of [100, 200]) keys.recordUse("b", usedAt);
      keys.recordUse("absent", 300);
      expect((await keys.list()).map(({ lastUsedAt }) => lastUsedAt)).toEqual([undefined, 200]);
    });
  });
}

function storedKey(id: string, more: Partial<StoredKey> = {}): StoredKey {
  return { id, name: id, tokenHash: hashOf(id), scope: "write", createdAt: 0, ...more };
}

const hashOf = (id: string): Buffer => hashToken(`token of ${id}`);

const withoutHash = ({ tokenHash: _, ...key }: StoredKey): Key => key;

export const HOSTILE_TITLES = [
  "\u0000",
  "a\u0000b",
  '"\\/\b\f\n\r\t',
  "\u2028\u2029",
  "\uFEFF x",
  "\u0001\u001f\u007f\u0080",
  "😀".repeat(120),
  "\uFFFD\uFFFF",
  "👨‍👩‍👧‍👦 é é",
  "'; DROP TABLE todos; --",
  "},{",
  '","done":true}',
  "__proto__",
  "\u0000".repeat(120),
];

const HOSTILE_NAMES = [
  "Zoë 😀",
  "'; DROP TABLE keys; --",
  "\u2028",
  '"\\',
  "%",
  "__proto__",
  "x".repeat(100),
];

export async function read({ json, position }: TodoList): Promise<{ position: Position; todos: Todo[] }> {
  const text = textOf(await bytesOf(json));
  const todos: unknown = JSON.parse(text, exactIds);
  if (!Array.isArray(todos)) throw new Error(`not a list: ${text}`);
  return { position, todos: todos.map(asTodo) };
}

export function decode(json: TodoJson): Todo {
  return asTodo(JSON.parse(textOf(json), exactIds));
}

async function bytesOf(json: TodoList["json"]): Promise<Uint8Array<ArrayBuffer>> {
  if (json instanceof Uint8Array) return json;
  if (json instanceof Blob) return json.bytes();
  const all: Uint8Array[] = [];
  for await (const piece of json) all.push(piece);
  return Buffer.concat(all);
}

const textOf = (json: TodoJson): string =>
  typeof json === "string" ? json : new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(json);

/** A JSON.parse reviver that returns numbers as bigints from their digits. */
function exactIds(_key: string, value: unknown, context?: { source?: string }): unknown {
  return typeof value === "number" ? BigInt(context?.source ?? value) : value;
}

function asTodo(value: unknown): Todo {
  if (typeof value === "object" && value !== null && "id" in value && "title" in value && "done" in value) {
    const { id, title, done, ...more } = value;
    expect(more).toEqual({});
    if (typeof id === "bigint" && typeof title === "string" && typeof done === "boolean")
      return { id, title, done };
  }
  throw new Error(`not a to-do: ${Bun.inspect(value)}`);
}

export async function take(store: Pick<TodoStore, "events">, after: Position, count: number) {
  const controller = new AbortController();
  const seen: { n: number; type: TodoEvent["type"]; id: TodoId; todo: Todo | undefined }[] = [];
  for await (const event of eachEvent(store, after, controller.signal)) {
    const todo = event.type === "deleted" ? undefined : decode(event.json);
    seen.push({ n: event.position.sequence, type: event.type, id: event.id, todo });
    if (seen.length === count) controller.abort();
  }
  return seen;
}

/** Returns the code of the error that a call, or its promise, causes; undefined if it succeeds. */
export async function failureOf(call: unknown): Promise<string | undefined> {
  try {
    await (typeof call === "function" ? call() : call);
  } catch (error) {
    if (error instanceof ServiceError) return error.code;
    throw error;
  }
  return undefined;
}

const upTo = (last: number): TodoId[] => Array.from({ length: last }, (_, i) => BigInt(i + 1));
