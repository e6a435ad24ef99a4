import { randomBytes } from "node:crypto";
import { MAX_TODO_ID, type TodoId } from "../../todo.ts";
import type { RemovedRecords } from "../records/idempotency.ts";
import { KeyTable, ServedKeys } from "../records/keys.ts";
import { LocalStore, TodoState } from "../state.ts";
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

/** Writes each use at once, because no write waits. */
class MemoryKeys extends ServedKeys {
  override recordUse(id: string, usedAt: number): void {
    super.recordUse(id, usedAt);
    this.flush();
  }
}

class MemoryStore extends LocalStore implements Store {
  readonly keys = new MemoryKeys(new KeyTable());
  protected readonly state: TodoState;

  constructor({ lastId, ...given }: MemoryOptions) {
    super();
    const options = { ...DEFAULTS, ...given };
    const position = { epoch: randomBytes(8).toString("hex"), sequence: 0 };
    const onRemoved = ({ evicted }: RemovedRecords) => options.onIdempotencyKeysEvicted(evicted.length);
    this.state = new TodoState({ ...options, maxId: MAX_TODO_ID, onRemoved }, { position, lastId });
  }

  insert(title: string, idempotencyKey?: string): ReturnType<typeof insert> {
    return insert(this.state, title, idempotencyKey);
  }

  setDone(id: TodoId, done: boolean): ReturnType<typeof setDone> {
    return setDone(this.state, id, done);
  }

  delete(id: TodoId): ReturnType<typeof remove> {
    return remove(this.state, id);
  }

  close(): void {
    this.state.feed.end();
  }
}
