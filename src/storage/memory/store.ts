import { randomBytes } from "node:crypto";
import {
  isExpired,
  type Key,
  type KeyStore,
  oldestKeptExpiry,
  type StoredKey,
} from "../../credential/key.ts";
import {
  type ListQuery,
  MAX_TODO_ID,
  type Position,
  type TodoEvent,
  type TodoId,
  type TodoJson,
  type TodoList,
} from "../../todo.ts";
import type { RemovedRecords } from "../records/idempotency.ts";
import { TodoState } from "../state.ts";
import { DEFAULTS, type Store, type StoreOptions } from "../store.ts";
import { insert, remove, setDone } from "../writes.ts";

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
  readonly #state: TodoState;

  constructor({ lastId, ...given }: MemoryOptions) {
    const options = { ...DEFAULTS, ...given };
    const position = { epoch: randomBytes(8).toString("hex"), sequence: 0 };
    const onRemoved = ({ evicted }: RemovedRecords) => options.onIdempotencyKeysEvicted(evicted.length);
    this.#state = new TodoState({ ...options, maxId: MAX_TODO_ID, onRemoved }, { position, lastId });
  }

  get count(): number {
    return this.#state.count;
  }

  get eventLag(): number {
    return this.#state.eventLag;
  }

  insert(title: string, idempotencyKey?: string): ReturnType<typeof insert> {
    return insert(this.#state, title, idempotencyKey);
  }

  get(id: TodoId): TodoJson | undefined {
    return this.#state.get(id);
  }

  list(query: ListQuery, maxBlobBytes?: number): TodoList {
    return this.#state.list(query, maxBlobBytes);
  }

  setDone(id: TodoId, done: boolean): ReturnType<typeof setDone> {
    return setDone(this.#state, id, done);
  }

  delete(id: TodoId): ReturnType<typeof remove> {
    return remove(this.#state, id);
  }

  position(): Position {
    return this.#state.position;
  }

  events(after: Position, signal: AbortSignal): AsyncGenerator<TodoEvent, void, undefined> {
    return this.#state.events(after, signal);
  }

  close(): void {
    this.#state.end();
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
