import type { Database } from "bun:sqlite";
import { basename } from "node:path";
import { ServiceError } from "../../error.ts";
import { toError } from "../../error-message.ts";
import {
  encodeTodo,
  type ListQuery,
  type Position,
  type TodoEvent,
  type TodoId,
  type TodoJson,
  type TodoList,
  type Written,
  withDone,
} from "../../todo.ts";
import type { ExportContents } from "../ndjson.ts";
import { createRecord } from "../records/idempotency.ts";
import { DEFAULTS, idsExhausted, type Store, type StoreOptions, storeFull } from "../store.ts";
import { WriteHealth } from "../write-health.ts";
import { Batch } from "./batch.ts";
import { describeOpenError, openError } from "./errors.ts";
import { ServerKeys } from "./keys.ts";
import { load, type State } from "./load.ts";
import { acquireLock, type Lock } from "./lock.ts";
import { removeAbandonedCopies } from "./maintenance/copy.ts";
import { assertNotBehindMark } from "./mark.ts";
import { randomId } from "./migrations.ts";
import { openDatabase } from "./open.ts";
import { Rescue } from "./rescue.ts";
import { storeRow } from "./store-row.ts";
import type { Commit } from "./writer.worker.ts";
import { startWriter, type WriterClient } from "./writer-client.ts";

/** The greatest id: SQLite's integers are signed 64-bit. */
export const MAX_SQLITE_ID: TodoId = 2n ** 63n - 1n;

/**
 * Opens a file, or creates it. Throws an Error with the reason if it cannot be used, and a StoreUnavailableError if the
 * same call may succeed later. Acknowledged writes are on disk (WAL, `synchronous=FULL`). Reads are served from memory and
 * never wait for the disk.
 */
export async function openSqlite(path: string, given: StoreOptions = {}): Promise<Store> {
  const options = { ...DEFAULTS, ...given };
  const lock = acquireLock(path);
  let database: Database | undefined;
  let reader: Database | undefined;
  let starting: Promise<WriterClient> | undefined;
  try {
    removeAbandonedCopies(path);
    const markProblem = assertNotBehindMark(path);
    database = openDatabase(path, "server");
    reader = openDatabase(path, "readOnly");
    // The writer thread checks the structure of the file while this thread loads the contents.
    const { id, transactions } = storeRow(database);
    const { maxEvents, onWarning } = options;
    starting = startWriter({ path, id, lock: lock.identity, maxEvents }, onWarning);
    const state = load(database, options);
    if (markProblem !== undefined && transactions > 0n) onWarning(markProblem);
    const writer = await starting;
    database.close();
    return new SqliteStore(path, state, writer, reader, lock, options);
  } catch (cause) {
    await starting?.then(
      (writer) => writer.close(),
      () => {}, // It is the cause, or the load has failed as well.
    );
    database?.close();
    // It is the last, so that SQLite does not move the WAL of a store that may be damaged to the database.
    reader?.close();
    lock.close();
    throw openError(`${path}: ${describeOpenError(path, cause)}`, cause);
  }
}

/**
 * Concurrent writes share one transaction and one fsync in the writer thread. This class computes the effect of a
 * batch from the table, and changes the table only after the batch is on disk.
 */
class SqliteStore implements Store {
  readonly keys: ServerKeys;
  readonly id: string;
  /** The epoch of all changes of this process. Another start, which may be of an old copy of the file, has another one. */
  readonly #epoch = randomId();
  readonly #state: State;
  readonly #writer: WriterClient;
  readonly #lock: Lock;
  readonly #rescue: Rescue;
  readonly #options: typeof DEFAULTS;
  /** The hashes of evicted idempotency keys; the next batch deletes them from the file. */
  #evicted: string[] = [];
  /** Resolves with the batch of the writes that wait now, once the batch before it is on disk. */
  #nextBatch: PromiseWithResolvers<Batch> | undefined;
  #writing: Promise<void> | undefined;
  /** The last batch, if its commit failed or is under way. It may be on disk. */
  #unconfirmed: Batch | undefined;
  /** Whether the last batch has failed, and no check of writes has succeeded since. */
  readonly #writeHealth = new WriteHealth(() => this.#checkWrites());

  constructor(
    path: string,
    state: State,
    writer: WriterClient,
    reader: Database,
    lock: Lock,
    options: typeof DEFAULTS,
  ) {
    this.keys = new ServerKeys(reader, writer.request, (failure) => this.#onWrite(failure));
    this.id = state.id;
    this.#state = state;
    this.#writer = writer;
    this.#lock = lock;
    this.#options = options;
    this.#rescue = new Rescue({
      path,
      otherFolder: options.rescueFolder,
      check: () => this.#checkFiles(),
      onFailure: () => this.#onFilesFail(),
      contents: () => this.#contents(),
      onWarning: options.onWarning,
    });
  }

  get rescueFile(): string | undefined {
    return this.#rescue.file;
  }

  get count(): number {
    return this.#state.table.count;
  }

  get eventLag(): number {
    return this.#state.feed.lag;
  }

  async insert(title: string, idempotencyKey?: string): Promise<Written & { id: TodoId; json: TodoJson }> {
    const batch = await this.#joinBatch();
    const todo =
      idempotencyKey === undefined
        ? this.#create(batch, title)
        : this.#createOnce(batch, title, idempotencyKey);
    const { position } = batch;
    await batch.outcome.promise;
    return { ...todo, position };
  }

  get(id: TodoId): TodoJson | undefined {
    return this.#state.table.get(id);
  }

  list(query: ListQuery, maxBlobBytes?: number): TodoList {
    return { position: this.position(), ...this.#state.table.list(query, maxBlobBytes) };
  }

  async setDone(id: TodoId, done: boolean): Promise<Written & { json: TodoJson | undefined }> {
    const batch = await this.#joinBatch();
    const before = this.#jsonIn(batch, id);
    const json = before === undefined ? undefined : withDone(before, done);
    if (before !== undefined && json !== undefined && json !== before) batch.update(id, before, json, done);
    const { position } = batch;
    await batch.outcome.promise;
    return { json, position };
  }

  async delete(id: TodoId): Promise<Written & { existed: boolean }> {
    const batch = await this.#joinBatch();
    const before = this.#jsonIn(batch, id);
    if (before !== undefined) batch.delete(id, before);
    const { position } = batch;
    await batch.outcome.promise;
    return { existed: before !== undefined, position };
  }

  position(): Position {
    return this.#state.feed.position;
  }

  /** Asks the writer only after a failed write, so that it is cheap and notices that writes succeed again. */
  checkWrites(): Promise<void> | undefined {
    return this.#writeHealth.run();
  }

  async #checkWrites(): Promise<void> {
    try {
      await this.#writer.request({ type: "checkWrites" });
    } catch (cause) {
      const { file } = this.#rescue;
      const detail =
        file && `The files of the store are wrong. ${basename(file)} has everything that the server holds.`;
      throw new ServiceError("store_unavailable", { cause, ...(detail && { detail }) });
    }
  }

  async #checkFiles(): Promise<void> {
    await this.#writer.request({ type: "checkFiles" });
    this.keys.useFiles();
  }

  #onFilesFail(): void {
    this.#writeHealth.failed();
    this.keys.useCopy();
  }

  #onWrite(failure: unknown): void {
    if (failure === undefined) this.#rescue.writeSucceeded();
    else this.#rescue.writeFailed();
  }

  #contents(): ExportContents {
    return {
      lastId: this.#state.lastId,
      count: this.count,
      todos: this.#state.table.batches(),
      keys: this.keys.copy,
      idempotencyRecords: this.#state.idempotencyRecords.list(),
    };
  }

  events(after: Position, signal: AbortSignal): AsyncGenerator<TodoEvent, void, undefined> {
    return this.#state.feed.after(after, signal);
  }

  async close(): Promise<void> {
    while (this.#writing !== undefined) await this.#writing;
    this.#state.feed.end();
    await this.keys.flush();
    const failure = await this.#writer.request({ type: "checkBeforeClose" }).then(() => undefined, toError);
    try {
      await this.#rescue.close(failure);
    } finally {
      // SQLite moves the WAL to the database and deletes it if the last connection can write. That of the keys cannot.
      if (failure === undefined) this.keys.close();
      await this.#writer.close();
      this.keys.close();
      this.#lock.close();
    }
  }

  #create(batch: Batch, title: string): { id: TodoId; json: string } {
    if (batch.count >= this.#options.maxTodos) throw storeFull(this.#options.maxTodos);
    if (batch.lastId >= MAX_SQLITE_ID) throw idsExhausted();
    return batch.create(title);
  }

  #createOnce(batch: Batch, title: string, idempotencyKey: string): { id: TodoId; json: string } {
    const id = this.#state.idempotencyRecords.find(idempotencyKey, title, batch.idempotencyRecords);
    if (id !== undefined) return { id, json: encodeTodo({ id, title, done: false }) };
    const todo = this.#create(batch, title);
    const record = createRecord(idempotencyKey, title, todo.id, this.#options.now());
    batch.idempotencyRecords.set(record.keyHash, record);
    return todo;
  }

  /** Returns a to-do after the earlier writes of the batch. */
  #jsonIn(batch: Batch, id: TodoId): string | undefined {
    const pending = batch.pending(id);
    if (pending !== undefined) return pending.json;
    const json = this.#state.table.get(id);
    return json === undefined ? undefined : decoder.decode(json);
  }

  /** Resolves with the batch of a write. The caller adds its change at once, then waits for the batch's outcome. */
  #joinBatch(): Promise<Batch> {
    this.#nextBatch ??= Promise.withResolvers();
    this.#writing ??= this.#writeBatches();
    return this.#nextBatch.promise;
  }

  /** Writes batches until no write waits. */
  async #writeBatches(): Promise<void> {
    while (this.#nextBatch !== undefined) {
      // The first turn reads requests that arrived meanwhile, the second those caused by the last responses.
      await new Promise(setImmediate);
      await new Promise(setImmediate);
      const { promise, resolve, reject } = this.#nextBatch;
      this.#nextBatch = undefined;
      try {
        await this.#confirm();
      } catch (cause) {
        reject(new ServiceError("store_unavailable", { cause }));
        continue;
      }
      resolve(new Batch(this.position(), this.#epoch, this.#state.lastId, this.#state.table.count));
      // Promise callbacks run in the order of their registration, so every write has added its change when this resolves.
      await this.#writeBatch(await promise);
    }
    this.#writing = undefined;
  }

  /** Settles the outcome of a batch, also after an unexpected error, because its writes wait for it. */
  async #writeBatch(batch: Batch): Promise<void> {
    try {
      const commit = batch.commit(this.#evicted);
      if (commit !== undefined) await this.#commit(batch, commit);
      batch.outcome.resolve();
    } catch (cause) {
      batch.outcome.reject(new ServiceError("store_unavailable", { cause }));
    }
  }

  async #commit(batch: Batch, commit: Commit): Promise<void> {
    const started = performance.now();
    this.#unconfirmed = batch;
    try {
      await this.#writer.request({ type: "commit", commit });
    } catch (cause) {
      this.#writeHealth.failed();
      this.#onWrite(cause);
      throw cause;
    }
    this.#writeHealth.succeeded();
    this.#onWrite(undefined);
    this.#apply(batch);
    this.#options.onBatch(batch.events.length, performance.now() - started);
    if (this.#evicted.length > 0) this.#options.onIdempotencyKeysEvicted(this.#evicted.length);
  }

  /** Applies the last batch if its commit failed, but is on disk. Throws if this cannot be found out now. */
  async #confirm(): Promise<void> {
    const batch = this.#unconfirmed;
    if (batch === undefined) return;
    const sequence = this.position().sequence + batch.events.length;
    if (await this.#writer.request({ type: "hasCommitted", sequence })) this.#apply(batch);
    this.#unconfirmed = undefined;
  }

  /** Changes the memory after a batch is on disk. */
  #apply(batch: Batch): void {
    this.#unconfirmed = undefined;
    this.#state.lastId = batch.lastId;
    batch.applyTo(this.#state.table);
    for (const event of batch.events) this.#state.feed.publish(event);
    this.#evicted = [...batch.idempotencyRecords.values()].flatMap(
      (record) => this.#state.idempotencyRecords.add(record)?.keyHash ?? [],
    );
  }
}

const decoder = new TextDecoder();
