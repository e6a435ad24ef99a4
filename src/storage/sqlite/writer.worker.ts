/** The writer thread of a SQLite file. A slow disk delays only the writes, not the reads. */
import type { Database } from "bun:sqlite";
import type { StoredKey } from "../../credential/key.ts";
import type { KeyChange } from "../../credential/key-rules.ts";
import { errorMessage } from "../../error-message.ts";
import { type Position, type TodoId, todoText } from "../../todo.ts";
import { serveRequests } from "../../worker-thread.ts";
import { isTemporary } from "../failure.ts";
import { createdTodo, decodeEvent } from "../records/event-codec.ts";
import type { IdempotencyRecord } from "../records/idempotency.ts";
import type { FileUsage } from "../store.ts";
import { dataVersion, oneLine, openDatabase } from "./database.ts";
import { FileWatch, Mark } from "./file-watch.ts";
import { fileUsage } from "./files.ts";
import {
  assertIntact,
  assertStructure,
  changeKeys,
  deleteTodo,
  insertEvents,
  putCounters,
  putRecord,
  readCounters,
  readKeys,
  type StoredCounters,
  toChecksum,
  todoInserter,
  updateTodo,
} from "./rows.ts";

/** The changes of a batch of writes. */
interface Commit {
  readonly startSequence: number;
  readonly epoch: string;
  /** The events, one per line, because one string is posted faster than many. */
  readonly events: string;
  /** The hashes of idempotency keys to delete before the new records are added. */
  readonly removed: readonly string[];
  readonly records: readonly IdempotencyRecord[];
}

/** What the request wrote is on disk. A request that throws was rolled back; after a crash, the next start may still find it. */
export interface WriterReply {
  readonly isAllowed?: boolean;
  readonly usage?: FileUsage;
  /** All API keys after a change, if the server uses others. */
  readonly keys?: { readonly stored: readonly StoredKey[]; readonly change: bigint };
}

/** A checkpoint is due after this number of transactions, which write a few MB, and after a second with few of them. */
const CHECKPOINT_TRANSACTIONS = 200;
const FEW_TRANSACTIONS = 10;
/** Larger than most batches, so that a test does not succeed in a rest of space that is too small for them. */
const TEST_TEXT = " ".repeat(64 * 1024);
/** Reading the store again takes at most this share of the time, because writes wait for it. */
const VERIFYING_SHARE = 0.05;

/** Returns when work may be done again that was started at a time, and has just ended. */
function nextTime(started: number): number {
  const ended = performance.now();
  return ended + (ended - started) / VERIFYING_SHARE;
}

class Writer {
  readonly #path: string;
  readonly #database: Database;
  readonly #reader: Database;
  readonly #files: FileWatch;
  readonly #mark: Mark;
  readonly #maxEvents: number;
  /** As the last transaction has left them. */
  #counters: StoredCounters;
  /** What SQLite changes when another connection commits. */
  #dataVersion: bigint;
  /** Why the last check of the files has failed. */
  #problem: string | undefined;
  /** Whether the last batch did not follow the last transaction. */
  #isOutOfStep = false;
  /** The number of transactions since the last checkpoint, and since the last tick. */
  #unmoved = 1;
  #sinceTick = 0;
  /** Whether another program has written to the store since it was read, and when it may be read again. */
  #isSuspect = false;
  #verifyAt = 0;
  /** The sequence number at which old events are deleted next. Rare, because it costs a tenth of a batch. */
  #deleteOldEventsAt = 0;

  /**
   * Opens a database and checks its structure.
   * @param name the configured path of the store
   * @param path its canonical path
   */
  constructor(name: string, path: string, maxEvents: number) {
    this.#path = path;
    this.#maxEvents = maxEvents;
    this.#database = openDatabase(path, "write");
    this.#reader = openDatabase(path, "read");
    try {
      assertStructure(this.#database);
      this.#counters = readCounters(this.#database);
      this.#dataVersion = dataVersion(this.#database);
      this.#files = new FileWatch(name, path);
    } catch (error) {
      this.#database.close();
      this.#reader.close();
      throw error;
    }
    this.#mark = new Mark(path);
  }

  /**
   * Checks the files, makes a checkpoint if one is due, and looks for API keys that a command has changed.
   * @param usedKeys the change of API keys that the server uses, so the command that made it can end
   */
  tick(usedKeys: bigint): WriterReply {
    this.#check();
    this.#transact(() => {}, "deferred");
    // Also at the first start of a store: from then on, a copy without its mark says that it may lack changes.
    if (this.#counters.keys_used < usedKeys)
      this.#transact(() => putCounters(this.#database, { ...this.#counters, keys_used: usedKeys }));
    this.#mark.renew(this.#counters);
    if (this.#unmoved > 0 && (this.#sinceTick < FEW_TRANSACTIONS || this.#unmoved > CHECKPOINT_TRANSACTIONS))
      this.#checkpoint();
    this.#sinceTick = 0;
    const usage = fileUsage(this.#path);
    const { key_changes: change } = this.#counters;
    if (change === usedKeys) return { usage };
    return { usage, keys: { stored: readKeys(this.#database), change } };
  }

  /** Writes as much as a batch, and removes it again. */
  testWrite(): WriterReply {
    this.#check();
    this.#transact(() => {
      this.#assertInStep();
      // SQLite writes nothing for an UPDATE without a change, so a large row is added and removed again.
      this.#database.query("INSERT INTO todos VALUES (0, ?, 0)").run(TEST_TEXT);
      this.#database.run("DELETE FROM todos WHERE id = 0");
    });
    return {};
  }

  commit(commit: Commit): WriterReply {
    this.#write(() => this.#commit(commit));
    return {};
  }

  /** `isAllowed` of the reply says whether the rules allow the change. The next tick confirms it. */
  changeKeys(change: KeyChange): WriterReply {
    // Nothing throws after the commit, so the keys are read before it.
    const [isAllowed, stored] = this.#write(() => [
      changeKeys(this.#database, change) !== undefined,
      readKeys(this.#database),
    ]);
    return { isAllowed, keys: { stored, change: this.#counters.key_changes } };
  }

  /** Throws if the files are wrong. Then the WAL, which may not fit the database, stays as it is. */
  close(): WriterReply {
    this.#verifyAt = 0;
    try {
      this.#check();
      // SQLite moves the WAL when it closes the last connection that can write.
      this.#reader.close();
      return {};
    } finally {
      this.#mark.close();
      this.#files.close();
      this.#database.close();
      this.#reader.close();
    }
  }

  #write<T>(work: () => T): T {
    if (this.#problem !== undefined) throw new Error(this.#problem);
    this.#check();
    this.#sinceTick++;
    // Later, so that the write is acknowledged first.
    if (++this.#unmoved % CHECKPOINT_TRANSACTIONS === 0) setImmediate(() => this.#checkpoint());
    return this.#transact(work);
  }

  /** Throws unless the files are right. */
  #check(): void {
    try {
      const isDue = this.#isSuspect && performance.now() >= this.#verifyAt;
      if (!this.#files.areUnchanged() || isDue) {
        // No other program writes meanwhile.
        this.#database.transaction(() => this.#verify()).immediate();
        this.#files.accept();
      }
      this.#problem = undefined;
    } catch (error) {
      this.#problem = errorMessage(error);
      // An old copy of all files has an old mark.
      this.#mark.renew(this.#counters);
      throw error;
    }
  }

  /** Throws if another program has changed the store. To be called in a transaction. */
  #verify(): void {
    const { id, sequence, key_changes } = this.#counters;
    const found = readCounters(this.#database);
    if (found.id !== id || found.sequence !== sequence)
      throw new Error(`another program has changed ${this.#path}`);
    // A command counts its changes to API keys, and writes only the WAL. A large store is not read for each of them.
    if (found.key_changes === key_changes || !this.#files.isDatabaseUnchanged()) this.#readBack(found);
    this.#dataVersion = dataVersion(this.#database);
  }

  /** Reads the whole store with another connection, which has no pages in memory; later if that was done a short time ago. */
  #readBack({ id, sequence, key_changes }: StoredCounters): void {
    const started = performance.now();
    this.#isSuspect = started < this.#verifyAt;
    if (this.#isSuspect) return;
    try {
      using database = openDatabase(this.#path, "read");
      const found = assertIntact(database);
      // An old copy is intact, too. A command may have changed an API key meanwhile.
      if (found.id !== id || found.sequence !== sequence || found.key_changes < key_changes)
        throw new Error("it is an old copy");
    } catch (error) {
      throw isTemporary(error)
        ? error
        : new Error(`another program has changed ${this.#path} (${oneLine(error)})`);
    }
    this.#verifyAt = nextTime(started);
  }

  /** Runs a function in a transaction. Verifies the store first if another connection has written to it. */
  #transact<T>(work: () => T, mode: "immediate" | "deferred" = "immediate"): T {
    try {
      const [result, counters] = this.#database
        .transaction(() => {
          if (dataVersion(this.#database) !== this.#dataVersion) this.#verify();
          this.#counters = readCounters(this.#database);
          return [work(), readCounters(this.#database)] as const;
        })
        [mode]();
      // Nothing throws after the commit: the main thread would not know what is on disk.
      this.#counters = counters;
      this.#mark.write(counters);
      return result;
    } finally {
      // One that fails may have written, too.
      if (mode === "immediate") this.#files.acceptWrite();
    }
  }

  #commit({ startSequence, epoch, events, removed, records }: Commit): void {
    const database = this.#database;
    const lines = events.split("\n");
    const end: Position = { epoch, sequence: startSequence + lines.length };
    this.#isOutOfStep = this.#counters.sequence !== BigInt(startSequence);
    this.#assertInStep();
    const { last_id, sum } = this.#writeTodos(lines, end);
    insertEvents(database, end, events);
    if (end.sequence >= this.#deleteOldEventsAt) {
      database.query("DELETE FROM events WHERE last_sequence <= ?").run(end.sequence - this.#maxEvents);
      this.#deleteOldEventsAt = end.sequence + this.#maxEvents / 10;
    }
    for (const hash of removed)
      database.query("DELETE FROM idempotency_records WHERE key_hash = ?").run(hash);
    for (const record of records) putRecord(database, record);
    const sequence = BigInt(end.sequence);
    putCounters(database, { ...this.#counters, epoch, sequence, last_id, checksum: toChecksum(sum) });
  }

  /** No commit can succeed while the main thread does not know the last one, so the server must not say that it is ready. */
  #assertInStep(): void {
    if (this.#isOutOfStep)
      throw new Error(`${this.#path} is at another position than the server: restart the server`);
  }

  /** Applies encoded events to the to-dos. Returns the greatest id and the checksum after them. */
  #writeTodos(lines: readonly string[], end: Position): { last_id: TodoId; sum: number } {
    const database = this.#database;
    const insertTodo = todoInserter(database);
    let { last_id } = this.#counters;
    let sum = Number(this.#counters.checksum);
    for (const line of lines) {
      const created = createdTodo(line);
      if (created !== undefined) {
        sum += insertTodo(++last_id, created);
        continue;
      }
      const event = decodeEvent(line, end);
      if (event.type === "deleted") sum += deleteTodo(database, event.id);
      else sum += updateTodo(database, event.id, todoText(event.json));
    }
    return { last_id, sum };
  }

  /**
   * Moves the WAL to the database, so that a copy of a quiet database is complete. Never waits for a reader. A failure fails no write:
   * the WAL has everything, and the next checkpoint may succeed.
   */
  #checkpoint(): void {
    try {
      this.#check();
      if (this.#isSuspect) return;
      const result = this.#database
        .query<{ busy: bigint; log: bigint; checkpointed: bigint }, []>("PRAGMA wal_checkpoint(PASSIVE)")
        .get();
      // A reader keeps the rest in the WAL.
      if (result?.busy === 0n && result.log === result.checkpointed) this.#unmoved = 0;
      this.#files.acceptCheckpoint();
    } catch {
      // The next check reports what is wrong.
    }
  }
}

type CallName = "tick" | "testWrite" | "commit" | "changeKeys" | "close";
type Arguments = { readonly [Name in CallName]: Parameters<Writer[Name]> };
/** A call of a method of the writer. */
type Call<Name extends CallName> = {
  readonly [One in Name]: { readonly name: One; readonly arguments: Arguments[One] };
}[Name];

/** Creates the writer, or calls one of its methods. */
export type WriterRequest =
  | Call<CallName>
  | { readonly name: "open"; readonly arguments: ConstructorParameters<typeof Writer> };

type Methods = { readonly [Name in CallName]: (...given: Arguments[Name]) => WriterReply };

const call = <Name extends CallName>(methods: Methods, { name, arguments: given }: Call<Name>): WriterReply =>
  methods[name](...given);

let writer: Writer | undefined;

serveRequests((request: WriterRequest): WriterReply => {
  if (request.name !== "open") {
    if (writer === undefined) throw new Error("the writer thread has not opened a file");
    return call(writer, request);
  }
  writer = new Writer(...request.arguments);
  return {};
});
