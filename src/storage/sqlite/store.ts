import type { Database } from "bun:sqlite";
import type { TodoId } from "../../todo.ts";
import { encodeEvent } from "../records/event-codec.ts";
import type { RemovedRecords } from "../records/idempotency.ts";
import { LocalStore, type StartContents, TodoState } from "../state.ts";
import { DEFAULTS, type FileUsage, type Store, type StoreOptions, storeUnavailable } from "../store.ts";
import { answerInTime, WriteQueue } from "../write-queue.ts";
import { insert, remove, setDone } from "../writes.ts";
import { Batch } from "./batch.ts";
import { describeOpenError } from "./diagnosis.ts";
import { openError } from "./errors.ts";
import { FileHealth } from "./health.ts";
import { ServerKeys } from "./keys.ts";
import { load } from "./load.ts";
import { acquireLock, type Lock } from "./lock.ts";
import { removeAbandonedCopies } from "./maintenance/copy.ts";
import { assertNotBehindMark } from "./mark.ts";
import { randomId } from "./migrations.ts";
import { openDatabase } from "./open.ts";
import { retireRescueFiles } from "./rescue.ts";
import { storeRow } from "./store-row.ts";
import { type FileRequest, WriterClient } from "./writer-client.ts";

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
    starting = WriterClient.start({ path, id, lock: lock.identity, maxEvents }, onWarning);
    const contents = load(database, options);
    if (markProblem !== undefined && transactions > 0n) onWarning(markProblem);
    const writer = await starting;
    retireRescueFiles(path, onWarning);
    lock.serve();
    // Commands have not waited until now, so the writer looks for their changes to API keys.
    await writer.request({ type: "checkFiles" });
    database.close();
    reader.close();
    return new SqliteStore(path, id, contents, writer, lock, options);
  } catch (cause) {
    await starting?.then((writer) => writer.close(false)).catch(() => {}); // It is the cause, or the load has failed as well.
    database?.close();
    // It is the last, so that SQLite does not move the WAL of a store that may be damaged to the database.
    reader?.close();
    lock.close();
    throw openError(`${path}: ${describeOpenError(path, cause)}`, cause);
  }
}

/**
 * Concurrent writes share one transaction and one fsync in the writer thread. A batch decides their effect; the state changes
 * only after the batch is on disk.
 */
class SqliteStore extends LocalStore implements Store {
  readonly keys: ServerKeys;
  readonly id: string;
  /** The epoch of all changes of this process. Another start, which may be of an old copy of the file, has another one. */
  readonly #epoch = randomId();
  protected readonly state: TodoState;
  readonly #queue = new WriteQueue<Batch>(
    () => new Batch(this.state, this.#epoch),
    (batch) => this.#commit(batch),
  );
  readonly #writer: WriterClient;
  readonly #lock: Lock;
  readonly #health: FileHealth;
  readonly #options: typeof DEFAULTS;
  /** The hashes of expired and evicted idempotency keys; the next batch deletes them from the file. */
  #removed: string[] = [];

  constructor(
    path: string,
    id: string,
    contents: StartContents,
    writer: WriterClient,
    lock: Lock,
    options: typeof DEFAULTS,
  ) {
    super();
    this.keys = new ServerKeys(writer.keys, (change) =>
      answerInTime(this.#send({ type: "changeKeys", change })),
    );
    writer.onKeys = (changed) => this.keys.update(changed);
    this.id = id;
    const onRemoved = (records: RemovedRecords) => this.#onRemoved(records);
    this.state = new TodoState({ ...options, maxId: MAX_SQLITE_ID, onRemoved }, contents);
    this.#writer = writer;
    this.#lock = lock;
    this.#options = options;
    this.#health = new FileHealth(writer, {
      path,
      otherFolder: options.rescueFolder,
      contents: () => ({ ...this.state.contents(), keys: this.keys.stored }),
      onWarning: options.onWarning,
    });
  }

  get rescueFile(): string | undefined {
    return this.#health.rescueFile;
  }

  get fileUsage(): FileUsage | undefined {
    return this.#writer.usage;
  }

  insert(title: string, idempotencyKey?: string): Promise<ReturnType<typeof insert>> {
    return this.#write((batch) => insert(batch, title, idempotencyKey));
  }

  setDone(id: TodoId, done: boolean): Promise<ReturnType<typeof setDone>> {
    return this.#write((batch) => setDone(batch, id, done));
  }

  delete(id: TodoId): Promise<ReturnType<typeof remove>> {
    return this.#write((batch) => remove(batch, id));
  }

  checkWrites(): Promise<void> | undefined {
    return this.#health.checkWrites();
  }

  async close(): Promise<void> {
    await this.#queue.whenIdle();
    this.state.feed.end();
    await this.keys.flush();
    try {
      await this.#health.close();
    } finally {
      this.#lock.close();
    }
  }

  /** Sends a write to the writer thread. Throws `store_unavailable`. */
  async #send(write: FileRequest): Promise<boolean> {
    try {
      const value = await this.#writer.request(write);
      this.#health.writeSucceeded();
      return value;
    } catch (cause) {
      this.#health.writeFailed();
      throw storeUnavailable(cause);
    }
  }

  /** Adds a write to the next batch. The batch decides the answer, but the write is answered after the commit only. */
  #write<Answer>(decide: (batch: Batch) => Answer): Promise<Answer> {
    return this.#queue.add((batch) => {
      const answer = decide(batch);
      return () => answer;
    });
  }

  async #commit(batch: Batch): Promise<void> {
    const { events, idempotencyRecords } = batch;
    if (events.length === 0) return;
    const started = performance.now();
    const commit = {
      startSequence: this.state.position.sequence,
      epoch: this.#epoch,
      events: events.map(encodeEvent).join("\n"),
      removed: this.#removed,
      idempotencyRecords,
    };
    await this.#send({ type: "commit", commit });
    this.#removed = [];
    batch.applyToState();
    this.#options.onBatch(events.length, performance.now() - started);
  }

  #onRemoved({ expired, evicted }: RemovedRecords): void {
    for (const { keyHash } of [...expired, ...evicted]) this.#removed.push(keyHash);
    this.#options.onIdempotencyKeysEvicted(evicted.length);
  }
}
