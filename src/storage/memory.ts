import { randomBytes } from "node:crypto";
import { EXPIRED_KEPT_MS, isExpired, type Key, type KeyStore, type StoredKey } from "../credential/key.ts";
import { Feed } from "../event.ts";
import {
  encodeTodo,
  type ListQuery,
  MAX_TODO_ID,
  type Position,
  type TodoEvent,
  type TodoId,
  type TodoJson,
  type TodoList,
} from "../todo.ts";
import { Receipts, receiptOf } from "./receipt.ts";
import { DEFAULTS, noMoreIds, noRoom, type Store, type StoreOptions } from "./store.ts";
import { Table } from "./table.ts";

export interface MemoryOptions extends StoreOptions {
  /** The id before the first one. */
  readonly lastId?: TodoId;
}

/** Opens an empty store that lives as long as the process. */
export function openMemory(options: MemoryOptions = {}): Store {
  return new MemoryStore(options);
}

class MemoryStore implements Store {
  readonly keys = new MemoryKeys();
  readonly #epoch = randomBytes(8).toString("hex");
  readonly #maxTodos: number;
  readonly #feed: Feed;
  readonly #table = new Table();
  readonly #receipts: Receipts;
  readonly #now: () => number;
  #lastId: TodoId;
  #n = 0;

  constructor({ lastId = 0n, ...options }: MemoryOptions) {
    const { maxTodos, maxEvents, now } = { ...DEFAULTS, ...options };
    this.#maxTodos = maxTodos;
    this.#feed = new Feed(maxEvents, this.#n);
    this.#receipts = new Receipts(maxTodos, now);
    this.#now = now;
    this.#lastId = lastId;
  }

  get count(): number {
    return this.#table.count;
  }

  insert(title: string, idempotencyKey?: string): { id: TodoId; json: TodoJson } {
    if (idempotencyKey === undefined) return this.#insert(title);
    const made = this.#receipts.find(idempotencyKey, title);
    if (made !== undefined) return { id: made, json: encodeTodo({ id: made, title, done: false }) };
    const todo = this.#insert(title);
    this.#receipts.add(receiptOf(idempotencyKey, title, todo.id, this.#now()));
    return todo;
  }

  get(id: TodoId): TodoJson | undefined {
    return this.#table.get(id);
  }

  list(query: ListQuery): TodoList {
    return { position: this.position(), ...this.#table.list(query) };
  }

  setDone(id: TodoId, done: boolean): TodoJson | undefined {
    const todo = this.#table.setDone(id, done);
    if (todo?.changed)
      this.#publish({ type: "updated", position: this.#nextPosition(), id, json: todo.json });
    return todo?.json;
  }

  delete(id: TodoId): boolean {
    const existed = this.#table.delete(id);
    if (existed) this.#publish({ type: "deleted", position: this.#nextPosition(), id });
    return existed;
  }

  position(): Position {
    return { epoch: this.#epoch, n: this.#n };
  }

  async *events(after: Position, signal: AbortSignal): AsyncGenerator<TodoEvent, void, undefined> {
    if (after.epoch === this.#epoch) yield* this.#feed.after(after.n, signal);
  }

  close(): void {}

  #insert(title: string): { id: TodoId; json: string } {
    if (this.#table.count >= this.#maxTodos) throw noRoom(this.#maxTodos);
    if (this.#lastId >= MAX_TODO_ID) throw noMoreIds();
    const id = this.#lastId + 1n;
    const json = encodeTodo({ id, title, done: false });
    this.#table.append(id, json);
    this.#lastId = id;
    this.#publish({ type: "created", position: this.#nextPosition(), id, json });
    return { id, json };
  }

  #nextPosition(): Position {
    return { epoch: this.#epoch, n: this.#n + 1 };
  }

  #publish(event: TodoEvent): void {
    this.#n = event.position.n;
    this.#feed.publish(event);
  }
}

class MemoryKeys implements KeyStore {
  /** By id, in the order they came. */
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
      if (key.name !== name) continue;
      this.#keys.set(key.id, { ...key, expiresAt: Math.min(key.expiresAt ?? expiresAt, expiresAt) });
    }
    this.#add(successor);
    return true;
  }

  delete(id: string): boolean {
    const key = this.#keys.get(id);
    if (key !== undefined) this.#idOfHash.delete(latin1(key.tokenHash));
    return this.#keys.delete(id);
  }

  touch(id: string, usedAt: number): void {
    const key = this.#keys.get(id);
    if (key !== undefined) this.#keys.set(id, { ...key, lastUsedAt: usedAt });
  }

  #add(key: StoredKey): void {
    this.#keys.set(key.id, key);
    this.#idOfHash.set(latin1(key.tokenHash), key.id);
    for (const old of this.#keys.values()) {
      if (isExpired(old, key.createdAt - EXPIRED_KEPT_MS)) this.delete(old.id);
    }
  }
}

const latin1 = (bytes: Uint8Array): string => Buffer.from(bytes).toString("latin1");
