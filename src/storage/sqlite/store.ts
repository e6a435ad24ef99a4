import type { Database } from "bun:sqlite";
import type { ChangeFeed } from "../../change-feed.ts";
import { ServiceError } from "../../error.ts";
import { errorMessage } from "../../error-message.ts";
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
import { createRecord, type IdempotencyRecords } from "../records/idempotency.ts";
import { DEFAULTS, idsExhausted, type Store, type StoreOptions, storeFull } from "../store.ts";
import type { Table } from "../table/table.ts";
import { Batch, type PendingWrite, Write } from "./batch.ts";
import { acquireLock, connect, load, migrate, type State } from "./file.ts";
import { ServerKeys } from "./server-keys.ts";
import { startWriter, type WriterClient } from "./writer-client.ts";

/** The greatest id: SQLite's integers are signed 64-bit. */
export const MAX_SQLITE_ID: TodoId = 2n ** 63n - 1n;

/**
 * Opens a file, or creates it. Throws an Error with the reason if it cannot be used. Acknowledged writes are on disk
 * (WAL, `synchronous=FULL`). Reads are served from memory and never wait for the disk.
 */
export async function openSqlite(path: string, given: StoreOptions = {}): Promise<Store> {
  const options = { ...DEFAULTS, ...given };
  const lock = acquireLock(path);
  try {
    const database = connect(path);
    migrate(database);
    const state = load(database, options);
    return new SqliteStore(state, await startWriter(path, options.maxEvents), database, lock, options);
  } catch (cause) {
    lock.close();
    throw new Error(`${path}: ${errorMessage(cause)}`, { cause });
  }
}

/**
 * Concurrent writes share one transaction and one fsync in the writer thread. This class computes the effect of a
 * batch from the table, and changes the table only after the batch is on disk.
 */
class SqliteStore implements Store {
  readonly keys: ServerKeys;
  readonly #epoch: string;
  readonly #table: Table;
  readonly #feed: ChangeFeed;
  readonly #receipts: IdempotencyRecords;
  readonly #writer: WriterClient;
  readonly #lock: Database;
  readonly #maxTodos: number;
  readonly #now: () => number;
  readonly #onBatch: (writes: number, ms: number) => void;
  readonly #onIdempotencyKeysEvicted: (count: number) => void;
  /** The hashes of evicted idempotency keys; the next batch deletes them from the file. */
  #evicted: string[] = [];
  #lastId: TodoId;
  #n: number;
  #waiting: PendingWrite[] = [];
  #writing: Promise<void> | undefined;

  constructor(
    state: State,
    writer: WriterClient,
    database: Database,
    lock: Database,
    { maxTodos, now, onBatch, onIdempotencyKeysEvicted }: typeof DEFAULTS,
  ) {
    this.keys = new ServerKeys(database, writer);
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
    this.#onIdempotencyKeysEvicted = onIdempotencyKeysEvicted;
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
      const receipt = createRecord(idempotencyKey, title, todo.id, this.#now());
      batch.receipts.set(receipt.keyHash, receipt);
      return todo;
    });
  }

  get(id: TodoId): TodoJson | undefined {
    return this.#table.get(id);
  }

  list(query: ListQuery, maxBlobBytes?: number): TodoList {
    return { position: this.position(), ...this.#table.list(query, maxBlobBytes) };
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
    return { epoch: this.#epoch, sequence: this.#n };
  }

  async *events(after: Position, signal: AbortSignal): AsyncGenerator<TodoEvent, void, undefined> {
    if (after.epoch === this.#epoch) yield* this.#feed.after(after.sequence, signal);
  }

  async close(): Promise<void> {
    while (this.#writing !== undefined) await this.#writing;
    this.#feed.end();
    await this.keys.close();
    await this.#writer.close();
    this.#lock.close();
  }

  #insert(batch: Batch, title: string): { id: TodoId; json: string } {
    if (batch.count >= this.#maxTodos) throw storeFull(this.#maxTodos);
    if (batch.lastId >= MAX_SQLITE_ID) throw idsExhausted();
    const id = batch.lastId + 1n;
    const json = encodeTodo({ id, title, done: false });
    batch.create(json);
    return { id, json };
  }

  /** Returns a to-do after the earlier writes of the batch. */
  #jsonIn(batch: Batch, id: TodoId): string | undefined {
    const touched = batch.pending(id);
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

  /** Writes batches until no write waits. */
  async #writeBatches(): Promise<void> {
    while (this.#waiting.length > 0) {
      // The first turn reads requests that arrived meanwhile, the second those caused by the last responses.
      await new Promise(setImmediate);
      await new Promise(setImmediate);
      const writes = this.#waiting;
      this.#waiting = [];
      await this.#writeBatch(writes);
    }
    this.#writing = undefined;
  }

  async #writeBatch(writes: readonly PendingWrite[]): Promise<void> {
    const batch = new Batch(this.position(), this.#lastId, this.#table.count);
    for (const write of writes) write.apply(batch);
    const commit = batch.commit(this.#evicted);
    const started = performance.now();
    try {
      if (commit !== undefined) {
        await this.#writer.request({ type: "commit", commit });
        this.#onBatch(writes.length, performance.now() - started);
      }
    } catch (cause) {
      for (const write of writes) write.fail(new ServiceError("store_unavailable", { cause }));
      return;
    }
    this.#lastId = batch.lastId;
    this.#n += batch.events.length;
    batch.applyTo(this.#table);
    for (const event of batch.events) this.#feed.publish(event);
    if (commit !== undefined) {
      const added = [...batch.receipts.values()];
      this.#evicted = added.flatMap((receipt) => this.#receipts.add(receipt)?.keyHash ?? []);
      if (this.#evicted.length > 0) this.#onIdempotencyKeysEvicted(this.#evicted.length);
    }
    for (const write of writes) write.settle();
  }
}

const decoder = new TextDecoder();
