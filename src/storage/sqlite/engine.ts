import type { Database } from "bun:sqlite";
import type { Feed } from "../../event.ts";
import { Failure } from "../../failure.ts";
import {
  encodeTodo,
  type ListQuery,
  type Position,
  type TodoEvent,
  type TodoId,
  type TodoJson,
  type TodoList,
  withDone,
} from "../../todo.ts";
import { type Receipts, receiptOf } from "../receipt.ts";
import { DEFAULTS, noMoreIds, noRoom, type Store, type StoreOptions } from "../store.ts";
import type { Table } from "../table.ts";
import { Batch, type Waiting, Write } from "./batch.ts";
import { connect, load, migrate, type State, takeLock } from "./file.ts";
import { ServedKeys } from "./served-keys.ts";
import { startWriter, type WriterThread } from "./thread.ts";

/** SQLite's integers are signed. */
export const MAX_SQLITE_ID: TodoId = 2n ** 63n - 1n;

/**
 * Opens a file, made if it is not there; throws an Error that says why it cannot be used. Everything acknowledged
 * is on disk (WAL, `synchronous=FULL`); to-dos are read from memory, so that no reader waits for the disk.
 */
export async function openSqlite(path: string, given: StoreOptions = {}): Promise<Store> {
  const options = { ...DEFAULTS, ...given };
  const lock = takeLock(path);
  try {
    const database = connect(path);
    migrate(database);
    const state = load(database, options);
    return new SqliteStore(state, await startWriter(path, options.maxEvents), database, lock, options);
  } catch (cause) {
    lock.close();
    throw new Error(`${path}: ${cause instanceof Error ? cause.message : cause}`, { cause });
  }
}

/**
 * Writes that arrive together share one transaction and one fsync, in a thread of their own. What a batch
 * comes to is worked out here, from the table; the table itself changes once the batch is on disk.
 */
class SqliteStore implements Store {
  readonly keys: ServedKeys;
  readonly #epoch: string;
  readonly #table: Table;
  readonly #feed: Feed;
  readonly #receipts: Receipts;
  readonly #writer: WriterThread;
  readonly #lock: Database;
  readonly #maxTodos: number;
  readonly #now: () => number;
  readonly #onBatch: (writes: number, ms: number) => void;
  #lastId: TodoId;
  #n: number;
  #waiting: Waiting[] = [];
  #writing: Promise<void> | undefined;

  constructor(
    state: State,
    writer: WriterThread,
    database: Database,
    lock: Database,
    { maxTodos, now, onBatch }: typeof DEFAULTS,
  ) {
    this.keys = new ServedKeys(database, writer);
    this.#epoch = state.epoch;
    this.#table = state.table;
    this.#feed = state.feed;
    this.#receipts = state.receipts;
    this.#lastId = state.lastId;
    this.#n = state.n;
    this.#writer = writer;
    this.#lock = lock;
    this.#maxTodos = maxTodos;
    this.#now = now;
    this.#onBatch = onBatch;
  }

  get count(): number {
    return this.#table.count;
  }

  insert(title: string, idempotencyKey?: string): Promise<{ id: TodoId; json: TodoJson }> {
    return this.#write((batch) => {
      if (idempotencyKey === undefined) return this.#insert(batch, title);
      const made = this.#receipts.find(idempotencyKey, title, batch.receipts);
      if (made !== undefined) return { id: made, json: encodeTodo({ id: made, title, done: false }) };
      const todo = this.#insert(batch, title);
      const receipt = receiptOf(idempotencyKey, title, todo.id, this.#now());
      batch.receipts.set(receipt.keyHash, receipt);
      return todo;
    });
  }

  get(id: TodoId): TodoJson | undefined {
    return this.#table.get(id);
  }

  list(query: ListQuery): TodoList {
    return { position: this.position(), ...this.#table.list(query) };
  }

  setDone(id: TodoId, done: boolean): Promise<TodoJson | undefined> {
    return this.#write((batch) => {
      const now = this.#jsonIn(batch, id);
      if (now === undefined) return undefined;
      const json = withDone(now, done);
      if (json !== now) batch.update(id, json, done);
      return json;
    });
  }

  delete(id: TodoId): Promise<boolean> {
    return this.#write((batch) => {
      if (this.#jsonIn(batch, id) === undefined) return false;
      batch.delete(id);
      return true;
    });
  }

  position(): Position {
    return { epoch: this.#epoch, n: this.#n };
  }

  async *events(after: Position, signal: AbortSignal): AsyncGenerator<TodoEvent, void, undefined> {
    if (after.epoch === this.#epoch) yield* this.#feed.after(after.n, signal);
  }

  async close(): Promise<void> {
    while (this.#writing !== undefined) await this.#writing;
    await this.keys.close();
    await this.#writer.close();
    this.#lock.close();
  }

  #insert(batch: Batch, title: string): { id: TodoId; json: string } {
    if (batch.count >= this.#maxTodos) throw noRoom(this.#maxTodos);
    if (batch.lastId >= MAX_SQLITE_ID) throw noMoreIds();
    const id = batch.lastId + 1n;
    const json = encodeTodo({ id, title, done: false });
    batch.create(json);
    return { id, json };
  }

  /** A to-do as the batch so far leaves it. */
  #jsonIn(batch: Batch, id: TodoId): string | undefined {
    const touched = batch.touched(id);
    if (touched !== undefined) return touched.json;
    const json = this.#table.get(id);
    return json === undefined ? undefined : decoder.decode(json);
  }

  #write<T>(plan: (batch: Batch) => T): Promise<T> {
    const write = new Write(plan);
    this.#waiting.push(write);
    this.#writing ??= this.#writeBatches();
    return write.answer;
  }

  /** Writes batch after batch while any write waits. */
  async #writeBatches(): Promise<void> {
    while (this.#waiting.length > 0) {
      // One turn of the event loop for what was sent meanwhile, one for what the last answers led to.
      await new Promise(setImmediate);
      await new Promise(setImmediate);
      const writes = this.#waiting;
      this.#waiting = [];
      await this.#writeBatch(writes);
    }
    this.#writing = undefined;
  }

  async #writeBatch(writes: readonly Waiting[]): Promise<void> {
    const batch = new Batch(this.position(), this.#lastId, this.#table.count);
    for (const write of writes) write.plan(batch);
    const commit = batch.commit();
    const started = performance.now();
    try {
      if (commit !== undefined) {
        await this.#writer.ask({ type: "commit", commit });
        this.#onBatch(writes.length, performance.now() - started);
      }
    } catch (cause) {
      for (const write of writes) write.fail(new Failure("store_unavailable", { cause }));
      return;
    }
    this.#lastId = batch.lastId;
    this.#n += batch.events.length;
    batch.applyTo(this.#table);
    for (const event of batch.events) this.#feed.publish(event);
    for (const receipt of batch.receipts.values()) this.#receipts.add(receipt);
    for (const write of writes) write.settle();
  }
}

const decoder = new TextDecoder();
