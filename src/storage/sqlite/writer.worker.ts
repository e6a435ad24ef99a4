/** The writer thread of a SQLite file. A slow disk delays only the writes, not the reads. */

import type { Database } from "bun:sqlite";
import { isDone, type Position, type TodoEvent, type TodoId, withDone } from "../../todo.ts";
import { serveRequests } from "../../worker-thread.ts";
import { createdTodo, decodeEvent } from "../records/event-codec.ts";
import { type IdempotencyRecord, RETENTION_MS } from "../records/idempotency.ts";
import { Checksum } from "./checksum.ts";
import { findStructuralDamage } from "./contents.ts";
import { type Committed, changedError, FileGuard } from "./file-guard.ts";
import type { FileIdentity } from "./files.ts";
import { type KeyRequest, SqliteKeys } from "./keys.ts";
import { MarkWriter } from "./mark.ts";
import { openDatabase } from "./open.ts";
import { storeRow, updateStoreRow } from "./store-row.ts";

/** The changes of a batch of writes. */
export interface Commit {
  /** The sequence number before the first event. */
  readonly startSequence: number;
  /** The epoch of the events. */
  readonly epoch: string;
  /** The events, one per line, because one string is posted faster than many. */
  readonly events: string;
  /** The hashes of idempotency keys to delete, before the new records are added, because a new record may have the same key. */
  readonly evicted: readonly string[];
  readonly idempotencyRecords: readonly IdempotencyRecord[];
}

/** What the writer thread opens. */
export interface WriterOptions {
  readonly path: string;
  /** The id of the store. */
  readonly id: string;
  /** The identity of the lock file when it was locked. */
  readonly lock: FileIdentity;
  readonly maxEvents: number;
}

export type WriterRequest =
  | { readonly type: "open"; readonly options: WriterOptions }
  /** The value is whether the structure of the file is sound. */
  | { readonly type: "check" }
  /** Checks the files, as every request does first. */
  | { readonly type: "checkFiles" }
  /** Checks the files and commits a transaction that changes nothing. */
  | { readonly type: "checkWrites" }
  /** Checks that "close" may move the WAL to the database. */
  | { readonly type: "checkBeforeClose" }
  | { readonly type: "commit"; readonly commit: Commit }
  /** The value is whether the last commit has this sequence number. */
  | { readonly type: "hasCommitted"; readonly sequence: number }
  | KeyRequest
  | { readonly type: "close" };

/** The request is on disk. One that throws was rolled back, or its outcome is unknown. */
export interface WriterReply {
  /** The result of the request; true if it has none. */
  readonly value: boolean;
  readonly warning: string | undefined;
}

/** Larger than most batches, so that a check does not succeed in a rest of space that is too small for them. */
const CHECKED_TEXT = " ".repeat(64 * 1024);

const ADD_EVENTS = "INSERT INTO events VALUES (?, ?, ?)";

class Writer {
  readonly #path: string;
  readonly #database: Database;
  readonly #files: FileGuard;
  readonly #mark: MarkWriter;
  #committed: Committed;
  readonly #keys: SqliteKeys;
  readonly #maxEvents: number;
  /** The sequence number at which old events are deleted next. Rare, because it costs a tenth of a batch. */
  #deleteOldEventsAt = 0;

  constructor({ path, id, lock, maxEvents }: WriterOptions) {
    const database = openDatabase(path, "server");
    const row = storeRow(database);
    if (row.id !== id) throw changedError(path);
    this.#path = path;
    this.#database = database;
    this.#files = new FileGuard(path, lock, database);
    this.#mark = new MarkWriter(path, id);
    this.#committed = { id, sequence: Number(row.sequence), transactions: Number(row.transactions) };
    // After a power cut, a mark might be there without its new store. So a new store has none before its first commit.
    if (row.last_id > 0n || row.transactions > 0n) this.#mark.open(this.#committed.transactions);
    this.#keys = new SqliteKeys(database, (counted) => this.#onCommit(this.#committed.sequence, counted));
    this.#maxEvents = maxEvents;
  }

  serve(request: Exclude<WriterRequest, { type: "open" }>): boolean {
    try {
      if (request.type === "checkBeforeClose") this.#files.checkBeforeClose(this.#committed);
      else if (request.type !== "close") this.#files.checkBefore(this.#committed);
      return this.#execute(request);
    } catch (error) {
      // The next start would trust an old mark that came with an old copy of the store.
      this.#openMark(this.#files.hasDatabase());
      throw error;
    }
  }

  /** Why the mark was not written; `undefined` if it was. */
  get warning(): string | undefined {
    return this.#mark.problem;
  }

  /** Another program may have removed or replaced the mark. */
  #openMark(canCreate: boolean): void {
    if (this.#committed.transactions > 0) this.#mark.open(this.#committed.transactions, canCreate);
  }

  #execute(request: Exclude<WriterRequest, { type: "open" }>): boolean {
    try {
      return this.#run(request);
    } catch (error) {
      this.#files.transactionFailed(error);
      throw error;
    }
  }

  #run(request: Exclude<WriterRequest, { type: "open" }>): boolean {
    switch (request.type) {
      case "commit":
        this.#commit(request.commit);
        return true;
      case "hasCommitted":
        return this.#committed.sequence === request.sequence;
      case "checkFiles":
      case "checkBeforeClose":
        this.#openMark(true);
        return true;
      case "checkWrites":
        this.#checkWrites();
        return true;
      case "check":
        return findStructuralDamage(this.#database).length === 0;
      case "insertKey":
        return this.#keys.insert(request.key);
      case "replaceKey":
        return this.#keys.replace(request.id, request.expiresAt, request.successor);
      case "deleteKey":
        return this.#keys.delete(request.id);
      case "recordKeyUses":
        this.#recordKeyUses(request.uses);
        return true;
      case "close":
        this.#mark.close();
        this.#database.close();
        return true;
    }
  }

  /** Checks the files before a commit is acknowledged, and writes the mark. */
  #onCommit(sequence: number, transactions: number): void {
    this.#committed = { id: this.#committed.id, sequence, transactions };
    this.#files.checkAfter(this.#committed);
    this.#mark.write(transactions);
  }

  #commit(commit: Commit): void {
    const lines = commit.events.split("\n");
    const end = { epoch: commit.epoch, sequence: commit.startSequence + lines.length };
    const transactions = this.#database.transaction(() => this.#write(commit, lines, end)).immediate();
    this.#onCommit(end.sequence, transactions);
  }

  #recordKeyUses(uses: ReadonlyMap<string, number>): void {
    const recorded = this.#database.transaction(() =>
      [...uses].filter(([id, usedAt]) => this.#keys.recordUse(id, usedAt)),
    )();
    if (recorded.length > 0) this.#files.checkAfter(this.#committed);
  }

  /** SQLite writes nothing for an UPDATE without a change, so a large row is added and removed again. */
  #checkWrites(): void {
    const unused = this.#committed.sequence + 1;
    this.#database.transaction(() => {
      this.#database.query(ADD_EVENTS).run(unused, "", CHECKED_TEXT);
      this.#database.query("DELETE FROM events WHERE last_sequence = ?").run(unused);
    })();
    this.#files.checkAfter(this.#committed);
  }

  /** Returns the number of transactions of the store, this one included. */
  #write(commit: Commit, lines: readonly string[], end: Position): number {
    const { epoch, sequence } = end;
    const database = this.#database;
    const checksum = new Checksum();
    const transactions = updateStoreRow(database, checksum, (row) => {
      if (row.sequence !== BigInt(commit.startSequence) || row.id !== this.#committed.id)
        throw changedError(this.#path);
      const last_id = this.#writeTodos(lines, end, row.last_id, checksum);
      return { epoch, last_id, sequence: BigInt(sequence) };
    });
    database.query(ADD_EVENTS).run(sequence, epoch, commit.events);
    if (sequence >= this.#deleteOldEventsAt) {
      database.query("DELETE FROM events WHERE last_sequence <= ?").run(sequence - this.#maxEvents);
      this.#deleteOldEventsAt = sequence + this.#maxEvents / 10;
    }
    for (const keyHash of commit.evicted)
      database.query("DELETE FROM idempotency_records WHERE key_hash = ?").run(keyHash);
    const deleteExpired = database.query("DELETE FROM idempotency_records WHERE created_at <= ?");
    const addRecord = database.query("INSERT OR REPLACE INTO idempotency_records VALUES (?, ?, ?, ?)");
    for (const { keyHash, titleHash, id: createdId, createdAt } of commit.idempotencyRecords) {
      deleteExpired.run(createdAt - RETENTION_MS);
      addRecord.run(keyHash, titleHash, createdId, createdAt);
    }
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
      if (row === null) throw changedError(this.#path);
      checksum.subtract(row.json);
      return;
    }
    const { changes } = this.#database
      .query("UPDATE todos SET json = ? WHERE id = ?")
      .run(event.json, event.id);
    if (changes === 0) throw changedError(this.#path);
    checksum.subtract(withDone(event.json, !isDone(event.json)));
    checksum.add(event.json);
  }
}

let writer: Writer | undefined;

function serve(request: WriterRequest): boolean {
  if (request.type === "open") writer = new Writer(request.options);
  else if (writer === undefined) throw new Error("the writer thread has not opened a file");
  else return writer.serve(request);
  return true;
}

serveRequests(
  (request: WriterRequest): WriterReply => ({
    value: serve(request),
    warning: writer?.warning,
  }),
);
