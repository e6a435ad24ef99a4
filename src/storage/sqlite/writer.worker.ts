/** The writer thread of a SQLite file. A slow disk delays only the writes, not the reads. */

import type { Database } from "bun:sqlite";
import type { TodoId } from "../../todo.ts";
import { serveRequests } from "../../worker-thread.ts";
import { createdTodos } from "../records/event-codec.ts";
import { type IdempotencyRecord, RETENTION_MS } from "../records/idempotency.ts";
import { Checksum } from "./checksum.ts";
import { findStructuralDamage } from "./contents.ts";
import { type Committed, changedError, FileGuard } from "./file-guard.ts";
import type { FileIdentity } from "./files.ts";
import { type KeyRequest, SqliteKeys } from "./keys.ts";
import { MarkWriter } from "./mark.ts";
import { openDatabase } from "./open.ts";
import { storeRow, updateStoreRow } from "./store-row.ts";

/** The effect of a batch of writes. */
export interface Commit {
  /** The greatest id before and after the batch. */
  readonly startId: TodoId;
  readonly lastId: TodoId;
  /** The epoch of the events, and the sequence numbers before the first and of the last one. */
  readonly epoch: string;
  readonly startSequence: number;
  readonly lastSequence: number;
  /** The events, one per line, because one string is posted faster than many. They contain the created to-dos. */
  readonly events: string;
  /** The other changed to-dos, encoded: after the batch, `undefined` for deleted ones, and before it. */
  readonly changed: readonly (readonly [id: TodoId, after: string | undefined, before: string])[];
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
    const transactions = this.#database.transaction(() => this.#write(commit)).immediate();
    this.#onCommit(commit.lastSequence, transactions);
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
  #write(commit: Commit): number {
    const { startSequence, lastSequence, epoch, lastId } = commit;
    const database = this.#database;
    const [insert, update, remove] = [
      database.query("INSERT INTO todos VALUES (?, ?)"),
      database.query("UPDATE todos SET json = ? WHERE id = ?"),
      database.query("DELETE FROM todos WHERE id = ?"),
    ];
    const checksum = new Checksum();
    let id = commit.startId;
    for (const json of createdTodos(commit.events)) {
      insert.run(++id, json);
      checksum.add(json);
    }
    for (const [changedId, after, before] of commit.changed) {
      checksum.subtract(before);
      if (after === undefined) {
        remove.run(changedId);
      } else {
        update.run(after, changedId);
        checksum.add(after);
      }
    }
    const transactions = updateStoreRow(database, checksum, (row) => {
      if (row.sequence !== BigInt(startSequence) || row.id !== this.#committed.id)
        throw changedError(this.#path);
      return { epoch, last_id: lastId, sequence: BigInt(lastSequence) };
    });
    database.query(ADD_EVENTS).run(lastSequence, epoch, commit.events);
    if (lastSequence >= this.#deleteOldEventsAt) {
      database.query("DELETE FROM events WHERE last_sequence <= ?").run(lastSequence - this.#maxEvents);
      this.#deleteOldEventsAt = lastSequence + this.#maxEvents / 10;
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
