import { randomBytes } from "node:crypto";
import { ChangeFeed } from "../../change-feed.ts";
import {
  isExpired,
  type Key,
  type KeyStore,
  oldestKeptExpiry,
  type StoredKey,
} from "../../credential/key.ts";
import {
  encodeTodo,
  type ListQuery,
  MAX_TODO_ID,
  type Position,
  type TodoEvent,
  type TodoId,
  type TodoJson,
  type TodoList,
  type Written,
} from "../../todo.ts";
import { createRecord, IdempotencyRecords } from "../records/idempotency.ts";
import { DEFAULTS, idsExhausted, type Store, type StoreOptions, storeFull } from "../store.ts";
import { Table } from "../table/table.ts";

export interface MemoryOptions extends StoreOptions {
  /** The id before the first one to assign. Default: 0. */
  readonly lastId?: TodoId;
}

/**
 * Opens an empty store in memory. Its contents are lost when the process ends.
 *
 * @example
 * ```ts
 * import { createService } from "todo-service";
 * import { openMemory } from "todo-service/memory";
 *
 * const service = createService({ store: openMemory({ maxTodos: 1000 }) });
 * ```
 */
export function openMemory(options: MemoryOptions = {}): Store {
  return new MemoryStore(options);
}

class MemoryStore implements Store {
  readonly keys = new MemoryKeys();
  readonly #options: Required<StoreOptions>;
  readonly #feed: ChangeFeed;
  readonly #table = new Table();
  readonly #idempotencyRecords: IdempotencyRecords;
  #lastId: TodoId;

  constructor({ lastId = 0n, ...options }: MemoryOptions) {
    this.#options = { ...DEFAULTS, ...options };
    const { maxTodos, maxEvents, now } = this.#options;
    this.#feed = new ChangeFeed(maxEvents, { epoch: randomBytes(8).toString("hex"), sequence: 0 });
    this.#idempotencyRecords = new IdempotencyRecords(maxTodos, now);
    this.#lastId = lastId;
  }

  get count(): number {
    return this.#table.count;
  }

  get eventLag(): number {
    return this.#feed.lag;
  }

  insert(title: string, idempotencyKey?: string): Written & { id: TodoId; json: TodoJson } {
    if (idempotencyKey === undefined) return this.#insert(title);
    const id = this.#idempotencyRecords.find(idempotencyKey, title);
    if (id !== undefined)
      return { id, json: encodeTodo({ id, title, done: false }), position: this.position() };
    const todo = this.#insert(title);
    const evicted = this.#idempotencyRecords.add(
      createRecord(idempotencyKey, title, todo.id, this.#options.now()),
    );
    if (evicted !== undefined) this.#options.onIdempotencyKeysEvicted(1);
    return todo;
  }

  get(id: TodoId): TodoJson | undefined {
    return this.#table.get(id);
  }

  list(query: ListQuery, maxBlobBytes?: number): TodoList {
    return { position: this.position(), ...this.#table.list(query, maxBlobBytes) };
  }

  setDone(id: TodoId, done: boolean): Written & { json: TodoJson | undefined } {
    const todo = this.#table.setDone(id, done);
    if (todo?.changed)
      this.#feed.publish({ type: "updated", position: this.#nextPosition(), id, json: todo.json });
    return { json: todo?.json, position: this.position() };
  }

  delete(id: TodoId): Written & { existed: boolean } {
    const existed = this.#table.delete(id);
    if (existed) this.#feed.publish({ type: "deleted", position: this.#nextPosition(), id });
    return { existed, position: this.position() };
  }

  position(): Position {
    return this.#feed.position;
  }

  events(after: Position, signal: AbortSignal): AsyncGenerator<TodoEvent, void, undefined> {
    return this.#feed.after(after, signal);
  }

  close(): void {
    this.#feed.end();
  }

  #insert(title: string): Written & { id: TodoId; json: string } {
    const { maxTodos } = this.#options;
    if (this.#table.count >= maxTodos) throw storeFull(maxTodos);
    if (this.#lastId >= MAX_TODO_ID) throw idsExhausted();
    const id = this.#lastId + 1n;
    const json = encodeTodo({ id, title, done: false });
    this.#table.append(id, json);
    this.#lastId = id;
    const position = this.#nextPosition();
    this.#feed.publish({ type: "created", position, id, json });
    return { id, json, position };
  }

  #nextPosition(): Position {
    const { epoch, sequence } = this.#feed.position;
    return { epoch, sequence: sequence + 1 };
  }
}

class MemoryKeys implements KeyStore {
  /** By id, in order of insertion. */
  readonly #keys = new Map<string, StoredKey>();
  readonly #idOfHash = new Map<string, string>();

  find(tokenHash: Uint8Array): StoredKey | undefined {
    const id = this.#idOfHash.get(latin1(tokenHash));
    return id === undefined ? undefined : this.#keys.get(id);
  }

  list(): Key[] {
    const keys = [...this.#keys.values()].map(({ tokenHash: _, ...key }) => key);
    return keys.toSorted((one, other) => one.createdAt - other.createdAt);
  }

  insert(key: StoredKey): boolean {
    const namesakes = [...this.#keys.values()].filter(({ name }) => name === key.name);
    if (namesakes.some((namesake) => !isExpired(namesake, key.createdAt))) return false;
    this.#add(key);
    return true;
  }

  replace(id: string, expiresAt: number, successor: StoredKey): boolean {
    const name = this.#keys.get(id)?.name;
    if (name === undefined) return false;
    for (const key of this.#keys.values()) {
      if (key.name !== name && this.#findParent(key)?.name !== name) continue;
      this.#keys.set(key.id, { ...key, expiresAt: Math.min(key.expiresAt ?? expiresAt, expiresAt) });
    }
    this.#add(successor);
    return true;
  }

  delete(id: string): boolean {
    const key = this.#keys.get(id);
    if (key === undefined) return false;
    for (const child of this.#keys.values()) if (child.parent === `key:${id}`) this.delete(child.id);
    this.#idOfHash.delete(latin1(key.tokenHash));
    return this.#keys.delete(id);
  }

  recordUse(id: string, usedAt: number): void {
    const key = this.#keys.get(id);
    if (key === undefined) return;
    const { parent, lifetime } = key;
    const renewed = parent !== undefined &&
      lifetime !== undefined && {
        expiresAt: Math.min(usedAt + lifetime, this.#findParent(key)?.expiresAt ?? Number.POSITIVE_INFINITY),
      };
    this.#keys.set(id, { ...key, lastUsedAt: usedAt, ...renewed });
  }

  #findParent({ parent = "" }: Key): Key | undefined {
    return parent.startsWith("key:") ? this.#keys.get(parent.slice(4)) : undefined;
  }

  #add(key: StoredKey): void {
    this.#keys.set(key.id, key);
    this.#idOfHash.set(latin1(key.tokenHash), key.id);
    const kept = oldestKeptExpiry([...this.#keys.values()], key.createdAt);
    for (const old of this.#keys.values()) if (isExpired(old, kept - 1)) this.delete(old.id);
  }
}

const latin1 = (bytes: Uint8Array): string => Buffer.from(bytes).toString("latin1");
