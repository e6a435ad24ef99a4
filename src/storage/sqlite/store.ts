import type { Database } from "bun:sqlite";
import { basename } from "node:path";
import { ServiceError } from "../../error.ts";
import { errorMessage, getErrno } from "../../error-message.ts";
import type { TodoId } from "../../todo.ts";
import { WorkerThread } from "../../worker-thread.ts";
import { Batch } from "../batch.ts";
import { withTimeout } from "../failure.ts";
import { encodeEvent } from "../records/event-codec.ts";
import type { RemovedRecords } from "../records/idempotency.ts";
import { KeyTable, ServedKeys } from "../records/keys.ts";
import { LocalStore, TodoState } from "../state.ts";
import { DEFAULTS, type FileUsage, type Store, type StoreOptions, storeUnavailable } from "../store.ts";
import { answerInTime, WriteHealth, WriteQueue } from "../write-queue.ts";
import { insert, remove, setDone } from "../writes.ts";
import { createDatabase, openDatabase, openError } from "./database.ts";
import { readMark } from "./file-watch.ts";
import { canonicalPath } from "./files.ts";
import { acquireLock } from "./lock.ts";
import { findRescueFiles, rescueTime, restoreCommand, retireRescueFile, writeRescueFile } from "./rescue.ts";
import { MAX_SQLITE_ID, randomId, readContents, readCounters, readEvents, readRecords } from "./rows.ts";
import type { WriterReply, WriterRequest } from "./writer.worker.ts";

const TICK_MS = 1000;
/** `/readyz` fails while the writer thread has not answered for longer than this. */
const SLOW_MS = 5000;

type Options = typeof DEFAULTS;
type Writer = WorkerThread<WriterRequest, WriterReply>;

/**
 * Opens a file, or creates it. Throws an Error with the reason if it cannot be used, and a StoreUnavailableError if the same
 * call may succeed later. Acknowledged writes are on disk (WAL, `synchronous=FULL`). Reads are served from memory and never
 * wait for the disk.
 * @param name the configured path, which may lead through symbolic links
 */
export async function openSqlite(name: string, given: StoreOptions = {}): Promise<Store> {
  const options = { ...DEFAULTS, ...given };
  const path = canonicalPath(name);
  const lock = acquireLock(path);
  let reader: Database | undefined;
  let writer: Writer | undefined;
  try {
    const compareMark = readMark(path);
    if (createDatabase(path)) options.onCreated();
    // It closes last if the start fails, so that a damaged WAL stays as it is.
    reader = openDatabase(path, "read");
    const counters = readCounters(reader);
    const warning = compareMark(counters);
    // The writer thread checks the structure of the file while this thread loads the contents.
    writer = new WorkerThread(new URL("./writer.worker.ts", import.meta.url));
    const opened = writer.request({ name: "open", arguments: [name, path, options.maxEvents] });
    opened.catch(() => {});
    const start = load(reader, options);
    await opened;
    const store = new SqliteStore(name, path, start, writer, lock, options);
    await store.start();
    reader.close();
    if (warning !== undefined) options.onWarning(warning);
    for (const file of findRescueFiles(path))
      options.onWarning(
        `this start does not need ${file}, which has what a server held at ${rescueTime(file)}: it is now ${retireRescueFile(file)}; restore it only if to-dos are missing`,
      );
    return store;
  } catch (cause) {
    await writer?.request({ name: "close", arguments: [] }).catch(() => {}); // It may not have opened the file.
    writer?.terminate();
    reader?.close();
    lock[Symbol.dispose]();
    throw openError(path, cause);
  }
}

/** Loads a file in one snapshot. Throws a DamageError if it is damaged; a store can do without events and idempotency keys. */
const load = (database: Database, options: Options) =>
  database.transaction(() => loadSnapshot(database, options)).deferred();

function loadSnapshot(database: Database, { maxTodos, maxEvents, onWarning, onProgress }: Options) {
  const { table, keys, counters } = readContents(database, onProgress);
  const { epoch, last_id: lastId } = counters;
  const position = { epoch, sequence: Number(counters.sequence) };
  const { records, damaged } = readRecords(database);
  if (damaged.length > 0)
    onWarning(
      `${damaged.length} damaged idempotency keys are not used: a repeated request may create a second to-do`,
    );
  const surplus = records.splice(0, records.length - maxTodos).map(({ keyHash }) => keyHash);
  const { events, damage } = readEvents(database, counters, maxEvents);
  if (damage !== undefined) onWarning(`${damage}: clients that reconnect from there load the list again`);
  const contents = { position, lastId, table, events, idempotencyRecords: records };
  return { keys, counters, contents, removed: [...damaged, ...surplus] };
}

/**
 * Concurrent writes share one transaction and one fsync in the writer thread. A batch decides their effect; the state changes
 * only after the batch is on disk.
 */
class SqliteStore extends LocalStore implements Store {
  readonly keys: ServedKeys;
  readonly id: string;
  fileUsage: FileUsage | undefined;
  /** The file with everything that the server holds, while the files of the store are wrong. */
  rescueFile: string | undefined;
  protected readonly state: TodoState;
  /** The epoch of all changes of this process. Another start, which may be of an old copy of the file, has another one. */
  readonly #epoch = randomId();
  readonly #queue = new WriteQueue<Batch>(
    () => new Batch(this.state, this.#epoch),
    (batch) => this.#commit(batch),
  );
  readonly #writes = new WriteHealth(() => this.#testWrite());
  #timer: NodeJS.Timeout | undefined;
  readonly #name: string;
  readonly #path: string;
  readonly #writer: Writer;
  readonly #lock: Disposable;
  readonly #options: Options;
  /** The hashes of the idempotency keys that the next batch deletes from the file. */
  #removed: string[];
  /** In memory, so that no request waits for the disk. */
  #keyTable: KeyTable;
  /** The number of the change to API keys that this process uses. */
  #usedKeys: bigint;
  #ticking: Promise<void> | undefined;
  /** The last warning that no rescue file could be written. */
  #lastWarning: string | undefined;

  constructor(
    name: string,
    path: string,
    { keys, counters, contents, removed }: ReturnType<typeof load>,
    writer: Writer,
    lock: Disposable,
    options: Options,
  ) {
    super();
    this.#name = name;
    this.#path = path;
    this.id = counters.id;
    this.#writer = writer;
    this.#lock = lock;
    this.#options = options;
    this.#removed = removed;
    this.#usedKeys = counters.key_changes;
    this.#keyTable = new KeyTable(keys);
    this.keys = new ServedKeys({
      find: (tokenHash) => this.#keyTable.find(tokenHash),
      stored: () => this.#keyTable.stored(),
      // The reply has the keys after the change.
      change: (change) =>
        answerInTime(
          this.#write({ name: "changeKeys", arguments: [change] }).then(
            ({ isAllowed }) => isAllowed === true,
          ),
        ),
    });
    const onRemoved = (records: RemovedRecords) => this.#onRemoved(records);
    this.state = new TodoState({ ...options, maxId: MAX_SQLITE_ID, onRemoved }, contents);
  }

  /** Checks the files now and every second. Rejects, and starts no timer, if they are wrong. */
  async start(): Promise<void> {
    await this.tick();
    this.#timer = setInterval(() => this.tick().catch(() => {}), TICK_MS).unref();
  }

  insert(title: string, idempotencyKey?: string): Promise<ReturnType<typeof insert>> {
    return this.#add((batch) => insert(batch, title, idempotencyKey));
  }

  setDone(id: TodoId, done: boolean): Promise<ReturnType<typeof setDone>> {
    return this.#add((batch) => setDone(batch, id, done));
  }

  delete(id: TodoId): Promise<ReturnType<typeof remove>> {
    return this.#add((batch) => remove(batch, id));
  }

  /**
   * Returns undefined if the last write and the last check of the files succeeded. Otherwise, tests whether writes succeed now.
   * Rejects with `store_unavailable` while they do not, or while the disk does not answer.
   */
  checkWrites(): Promise<void> | undefined {
    if (this.#writer.waitingMs() > SLOW_MS) return Promise.reject(tooSlow());
    const test = this.#writes.run();
    return test && withTimeout(SLOW_MS, tooSlow, () => test);
  }

  /**
   * Closes the files. If they are wrong, saves what this server holds first, and throws an Error if it cannot. Throws an Error, too,
   * if they are right, but cannot be closed.
   */
  async close(): Promise<void> {
    clearInterval(this.#timer);
    await this.#queue.whenIdle();
    this.state.feed.end();
    await this.keys.flush();
    let isSaved = false;
    try {
      await this.tick().catch(() => {
        isSaved = this.rescueFile !== undefined;
      });
      await this.#writer.request({ name: "close", arguments: [] });
    } catch (error) {
      await this.#onFailure(error);
      if (!isSaved) throw error;
    } finally {
      this.#writer.terminate();
      this.#lock[Symbol.dispose]();
    }
  }

  /** Checks the files. If they are wrong, saves what this server holds, once, and rejects. Calls during a check share it. */
  tick(): Promise<void> {
    this.#ticking ??= this.#tick().finally(() => {
      this.#ticking = undefined;
    });
    return this.#ticking;
  }

  async #tick(): Promise<void> {
    try {
      let reply: WriterReply;
      // Once more after a change of API keys, because its command waits until the server uses it.
      do reply = await this.#request({ name: "tick", arguments: [this.#usedKeys] });
      while (reply.keys !== undefined);
      this.fileUsage = reply.usage;
    } catch (error) {
      await this.#onFailure(error);
      throw error;
    }
    if (this.rescueFile === undefined) return;
    const old = retireRescueFile(this.rescueFile);
    this.rescueFile = undefined;
    this.#options.onWarning(
      `the files of the store are right again: do not restore ${old}, which lacks later changes`,
    );
  }

  /** Saves what this server holds, unless only space is missing or another program has a lock, which harms no stored to-do. */
  async #onFailure(error: unknown): Promise<void> {
    this.#writes.failed();
    if (this.rescueFile !== undefined || /^SQLITE_(?:BUSY|FULL)|^ENOSPC/.test(String(getErrno(error))))
      return;
    const { onWarning, rescueFolder } = this.#options;
    const reason = errorMessage(error);
    const contents = () => ({ ...this.state.contents(), keys: this.#keyTable.stored() });
    const path = this.#nextPath();
    try {
      const file = await writeRescueFile(path, rescueFolder, contents);
      this.rescueFile = file;
      this.#lastWarning = undefined;
      onWarning(
        `${reason}. Put the right files back. If you cannot, stop the server, run ${restoreCommand(file, path)}, and start the server: that file has everything that the server holds`,
      );
    } catch (cause) {
      const warning = `do not stop the server, because only its memory has all to-dos: ${reason}. No rescue file can be written: ${errorMessage(cause)}. Put the right files back, free space, or create the folder and make it writable; the server tries again. Meanwhile, save the list with curl SERVER/api/todos > todos.json`;
      if (warning !== this.#lastWarning) onWarning(warning);
      this.#lastWarning = warning;
    }
  }

  /** Returns the path that the next start will use: a start refuses to create a store beside a rescue file. */
  #nextPath(): string {
    try {
      return canonicalPath(this.#name);
    } catch {
      return this.#path;
    }
  }

  /** Sends a request to the writer thread, and takes the API keys that have changed. */
  async #request(request: WriterRequest): Promise<WriterReply> {
    const reply = await this.#writer.request(request);
    if (reply.keys === undefined) return reply;
    const own = reply.isAllowed === true ? 1n : 0n;
    const hasOthers = reply.keys.change > this.#usedKeys + own;
    this.#keyTable = new KeyTable(reply.keys.stored);
    this.#usedKeys = reply.keys.change;
    // A command waits until the server uses its change.
    if (hasOthers) this.tick().catch(() => {});
    return reply;
  }

  /** Sends a write to the writer thread. Throws `store_unavailable`. */
  async #write(request: WriterRequest): Promise<WriterReply> {
    try {
      const reply = await this.#request(request);
      this.#writes.succeeded();
      return reply;
    } catch (cause) {
      this.#writes.failed();
      throw storeUnavailable(cause);
    }
  }

  async #testWrite(): Promise<void> {
    try {
      await this.#write({ name: "testWrite", arguments: [] });
    } catch (cause) {
      const file = this.rescueFile && basename(this.rescueFile);
      const detail = `The files of the store are wrong. ${file} has everything that the server holds.`;
      throw file === undefined ? cause : new ServiceError("store_unavailable", { cause, detail });
    }
  }

  /** Adds a write to the next batch. The batch decides the answer, but the write is answered after the commit only. */
  #add<Answer>(decide: (batch: Batch) => Answer): Promise<Answer> {
    return this.#queue.add((batch) => {
      const answer = decide(batch);
      return () => answer;
    });
  }

  async #commit(batch: Batch): Promise<void> {
    const { events, idempotencyRecords: records } = batch;
    if (events.length === 0) return;
    const started = performance.now();
    const { sequence: startSequence } = this.state.position;
    const lines = events.map(encodeEvent).join("\n");
    // The key of a removed record may have been used again.
    const removed = this.#removed.filter((keyHash) => this.state.findRecord(keyHash) === undefined);
    const commit = { startSequence, epoch: this.#epoch, events: lines, removed, records };
    await this.#write({ name: "commit", arguments: [commit] });
    this.#removed = [];
    batch.applyToState();
    this.#options.onBatch(events.length, performance.now() - started);
  }

  #onRemoved({ expired, evicted }: RemovedRecords): void {
    for (const { keyHash } of [...expired, ...evicted]) this.#removed.push(keyHash);
    this.#options.onIdempotencyKeysEvicted(evicted.length);
  }
}

const tooSlow = (): ServiceError =>
  new ServiceError("store_unavailable", {
    cause: new Error(`the disk has not answered for ${SLOW_MS / 1000} seconds`),
  });
