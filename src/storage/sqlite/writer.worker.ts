/** The writer thread of a SQLite file. A slow disk delays only the writes, not the reads. */

import type { Database } from "bun:sqlite";
import type { KeyChange } from "../../credential/key-rules.ts";
import { isDone, type Position, type TodoEvent, type TodoId, todoText, withDone } from "../../todo.ts";
import { serveRequests } from "../../worker-thread.ts";
import { createdTodo, decodeEvent } from "../records/event-codec.ts";
import type { FileUsage } from "../store.ts";
import { Checksum } from "./checksum.ts";
import { findStructuralDamage } from "./contents.ts";
import { DamageError, isDamage } from "./errors.ts";
import { type Committed, FileGuard } from "./file-guard.ts";
import { fileUsage } from "./files.ts";
import { changeKeys } from "./keys.ts";
import { MarkWriter } from "./mark.ts";
import { openDatabase } from "./open.ts";
import { insertEvents, putIdempotencyRecord, readStoredKeys } from "./rows.ts";
import { storeRow, updateStoreRow } from "./store-row.ts";
import type {
  ChangedKeys,
  Commit,
  FileRequest,
  WriterOptions,
  WriterReply,
  WriterRequest,
} from "./writer-client.ts";

/** Larger than most batches, so that a check does not succeed in a rest of space that is too small for them. */
const CHECKED_TEXT = " ".repeat(64 * 1024);

/** From this number of new frames in the WAL on, the writer makes a checkpoint. */
const CHECKPOINT_FRAMES = 1000;

/** Another program may have changed the store. */
class SuspectError extends Error {
  override readonly name = "SuspectError";

  constructor(path: string) {
    super(`another program has changed ${path}`);
  }
}

/** Opens the database of a store. Throws a DamageError if its structure is damaged. */
function openSound(path: string, id: string): Database {
  const database = openDatabase(path, "server");
  try {
    if (storeRow(database).id !== id) throw new SuspectError(path);
    if (findStructuralDamage(database).length > 0) throw new DamageError("its structure is inconsistent");
    return database;
  } catch (error) {
    // The main thread still has it open, so that its WAL stays as it is.
    database.close();
    throw error;
  }
}

class Writer {
  readonly #path: string;
  readonly #database: Database;
  /** Open while the writer is, so that its end can keep the WAL: SQLite moves it only when it closes the last connection. */
  readonly #reader: Database;
  readonly #files: FileGuard;
  readonly #mark: MarkWriter;
  #committed: Committed;
  /** What SQLite changes when another connection commits or starts the WAL again. */
  #dataVersion: bigint;
  /** Whether the files must be verified before the next request, because another program may have changed them. */
  #isSuspect = false;
  /** The number of frames of the WAL at the last checkpoint. */
  #checkpointed = 0;
  /** Who has changed API keys since the last reply. */
  #keysChangedBy: "command" | "server" | undefined = "command";
  /** The number of replies with a command's API keys that the server does not use yet. */
  #unconfirmedKeys = 0;
  readonly #maxEvents: number;
  /** The sequence number at which old events are deleted next. Rare, because it costs a tenth of a batch. */
  #deleteOldEventsAt = 0;

  constructor({ path, id, lock, maxEvents }: WriterOptions) {
    const database = openSound(path, id);
    this.#path = path;
    this.#database = database;
    this.#dataVersion = dataVersion(database);
    const row = storeRow(database);
    this.#reader = openDatabase(path, "readOnly");
    this.#files = new FileGuard(path, lock, database);
    this.#mark = new MarkWriter(path, id);
    this.#committed = { id, sequence: Number(row.sequence), transactions: Number(row.transactions) };
    this.#maxEvents = maxEvents;
  }

  serve(request: FileRequest): boolean {
    try {
      return this.#run(request);
    } catch (error) {
      this.#isSuspect ||= request.type === "checkFiles" || isDamage(error) || error instanceof SuspectError;
      // The next start would trust an old mark that came with an old copy of the store.
      this.#openMark(this.#files.hasDatabase());
      throw error;
    }
  }

  /** Why the mark was not written; `undefined` if it was. */
  get warning(): string | undefined {
    return this.#mark.problem;
  }

  get usage(): FileUsage {
    return fileUsage(this.#path);
  }

  /** Returns the API keys if they have changed since the last call. */
  takeChangedKeys(): ChangedKeys | undefined {
    if (this.#keysChangedBy === undefined) return undefined;
    const stored = readStoredKeys(this.#database);
    const isAwaited = this.#keysChangedBy === "command";
    this.#keysChangedBy = undefined;
    if (isAwaited) this.#unconfirmedKeys++;
    return { stored, isAwaited };
  }

  #run(request: FileRequest): boolean {
    switch (request.type) {
      case "commit":
        this.#commit(request.commit);
        return true;
      case "checkFiles":
        this.#checkFiles();
        this.#openMark(true);
        return true;
      case "checkWrites":
        this.#checkWrites();
        return true;
      case "confirmKeys":
        this.#unconfirmedKeys--;
        this.#writeMark();
        return true;
      case "changeKeys":
        return this.#changeKeys(request.change);
    }
  }

  /** Runs a function in a transaction. Verifies a suspect store in it, because no other program can write meanwhile. */
  #transact<T>(work: () => T, mode: "immediate" | "deferred" = "immediate"): T {
    return this.#database
      .transaction(() => {
        if (this.#isSuspect || !this.#isOwn()) this.#verify();
        return work();
      })
      [mode]();
  }

  /** Returns whether the store is as the last transaction of this thread, or of a command, has left it. */
  #isOwn(): boolean {
    const { id, sequence, transactions } = this.#committed;
    const row = storeRow(this.#database);
    const version = dataVersion(this.#database);
    const counted = Number(row.transactions);
    if (row.id !== id || Number(row.sequence) !== sequence) return false;
    if (counted === transactions) return version === this.#dataVersion;
    if (counted < transactions) return false;
    // A command of this program counts its transaction. It changes API keys only.
    this.#committed = { id, sequence, transactions: counted };
    this.#dataVersion = version;
    this.#keysChangedBy = "command";
    return true;
  }

  /** Throws unless the files are right. */
  #checkFiles(): void {
    this.#isSuspect ||= !this.#files.check();
    this.#transact(() => {}, "deferred");
    if (this.#files.frameCount < CHECKPOINT_FRAMES) return;
    this.#checkpointed = this.#files.frameCount;
    if (!this.#files.checkpoint(() => moveWal(this.#database))) throw new SuspectError(this.#path);
  }

  /** Reads the whole store. Throws unless it has everything that was committed. */
  #verify(): void {
    this.#isSuspect = true;
    const { transactions } = this.#files.verify(this.#committed);
    this.#committed = { ...this.#committed, transactions: Number(transactions) };
    // That of this transaction, so that a later change makes the store suspect again.
    this.#dataVersion = dataVersion(this.#database);
    this.#isSuspect = false;
    this.#keysChangedBy = "command";
  }

  /** Another program may have removed or replaced the mark. */
  #openMark(canCreate: boolean): void {
    if (this.#canWriteMark()) this.#mark.open(this.#committed.transactions, canCreate);
  }

  #writeMark(): void {
    if (this.#canWriteMark()) this.#mark.write(this.#committed.transactions);
  }

  /**
   * Commands wait for the mark until the server uses their API keys. A new store has no mark before its first commit, because
   * the mark might be there without it after a power cut.
   */
  #canWriteMark(): boolean {
    return (
      this.#unconfirmedKeys === 0 && this.#keysChangedBy !== "command" && this.#committed.transactions > 0
    );
  }

  #onCommit(sequence: number, transactions: number): void {
    this.#committed = { id: this.#committed.id, sequence, transactions };
    this.#writeMark();
    // Later, so that the write is acknowledged first.
    setImmediate(() => this.#checkpointIfDue());
  }

  #checkpointIfDue(): void {
    try {
      const frames = this.#files.frameCount;
      if (frames < this.#checkpointed) this.#checkpointed = 0;
      if (frames - this.#checkpointed >= CHECKPOINT_FRAMES) this.#checkFiles();
    } catch {
      // The next request verifies the files, and reports what is wrong.
      this.#isSuspect = true;
    }
  }

  /** If the files are wrong, the reader is the last to close, so that the WAL, which may not fit the database, stays as it is. */
  close(areRight: boolean): void {
    try {
      if (areRight) this.#reader.close();
      this.#mark.close();
      this.#database.close();
    } finally {
      this.#reader.close();
      this.#files.close();
    }
  }

  #commit(commit: Commit): void {
    const lines = commit.events.split("\n");
    const end = { epoch: commit.epoch, sequence: commit.startSequence + lines.length };
    const transactions = this.#transact(() => this.#write(commit, lines, end));
    this.#onCommit(end.sequence, transactions);
  }

  #changeKeys(change: KeyChange): boolean {
    const transactions = this.#transact(() => changeKeys(this.#database, change));
    if (transactions === undefined) return false;
    // Uses do not count as a transaction.
    if (change.type !== "recordUses") this.#onCommit(this.#committed.sequence, transactions);
    this.#keysChangedBy ??= "server";
    return true;
  }

  /** SQLite writes nothing for an UPDATE without a change, so a large row is added and removed again. */
  #checkWrites(): void {
    const unused = this.#committed.sequence + 1;
    this.#transact(() => {
      insertEvents(this.#database, unused, "", CHECKED_TEXT);
      this.#database.query("DELETE FROM events WHERE last_sequence = ?").run(unused);
    });
  }

  /** Returns the number of transactions of the store, this one included. */
  #write(commit: Commit, lines: readonly string[], end: Position): number {
    const { epoch, sequence } = end;
    const database = this.#database;
    const checksum = new Checksum();
    const transactions = updateStoreRow(database, checksum, (row) => {
      if (row.sequence !== BigInt(commit.startSequence)) throw new SuspectError(this.#path);
      const last_id = this.#writeTodos(lines, end, row.last_id, checksum);
      return { epoch, last_id, sequence: BigInt(sequence) };
    });
    insertEvents(database, sequence, epoch, commit.events);
    if (sequence >= this.#deleteOldEventsAt) {
      database.query("DELETE FROM events WHERE last_sequence <= ?").run(sequence - this.#maxEvents);
      this.#deleteOldEventsAt = sequence + this.#maxEvents / 10;
    }
    for (const keyHash of commit.removed)
      database.query("DELETE FROM idempotency_records WHERE key_hash = ?").run(keyHash);
    for (const record of commit.idempotencyRecords) putIdempotencyRecord(database, record);
    return transactions;
  }

  /** Applies encoded events to the to-dos and to their checksum. Returns the greatest id after them. */
  #writeTodos(lines: readonly string[], end: Position, startId: TodoId, checksum: Checksum): TodoId {
    const database = this.#database;
    const insert = database.query("INSERT INTO todos VALUES (?, ?)");
    let lastId = startId;
    for (const line of lines) {
      const created = createdTodo(line);
      if (created === undefined) {
        this.#changeTodo(decodeEvent(line, end), checksum);
      } else {
        insert.run(++lastId, created);
        checksum.add(created);
      }
    }
    return lastId;
  }

  #changeTodo(event: TodoEvent, checksum: Checksum): void {
    if (event.type === "deleted") {
      const row = this.#database
        .query<{ json: string }, [TodoId]>("DELETE FROM todos WHERE id = ? RETURNING json")
        .get(event.id);
      if (row === null) throw new SuspectError(this.#path);
      checksum.subtract(row.json);
      return;
    }
    const json = todoText(event.json);
    const { changes } = this.#database.query("UPDATE todos SET json = ? WHERE id = ?").run(json, event.id);
    if (changes === 0) throw new SuspectError(this.#path);
    checksum.subtract(withDone(json, !isDone(json)));
    checksum.add(json);
  }
}

/** Makes a checkpoint that never waits for a reader, because writes would wait, too. Returns whether it is complete. */
function moveWal(database: Database): boolean {
  const result = database
    .query<{ busy: bigint; log: bigint; checkpointed: bigint }, []>("PRAGMA wal_checkpoint(PASSIVE)")
    .get();
  return result?.busy === 0n && result.log === result.checkpointed;
}

const dataVersion = (database: Database): bigint =>
  database.query<{ data_version: bigint }, []>("PRAGMA data_version").get()?.data_version ?? 0n;

let writer: Writer | undefined;

function serve(request: WriterRequest): boolean {
  if (request.type === "open") writer = new Writer(request.options);
  else if (writer === undefined) throw new Error("the writer thread has not opened a file");
  else if (request.type === "close") writer.close(request.areRight);
  else return writer.serve(request);
  return true;
}

serveRequests(
  (request: WriterRequest): WriterReply => ({
    value: serve(request),
    warning: writer?.warning,
    keys: request.type === "close" ? undefined : writer?.takeChangedKeys(),
    usage: request.type === "checkFiles" ? writer?.usage : undefined,
  }),
);
