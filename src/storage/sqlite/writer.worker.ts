/** The writer thread of a SQLite file. A slow disk delays only the writes, not the reads. */

import type { Database, Statement } from "bun:sqlite";
import { type BigIntStats, statSync } from "node:fs";
import type { StoredKey } from "../../credential/key.ts";
import { errorMessage } from "../../error-message.ts";
import { type TodoId, withDone } from "../../todo.ts";
import { type IdempotencyRecord, RETENTION_MS } from "../records/idempotency.ts";
import { connect } from "./connection.ts";
import { findStructuralDamage } from "./damage.ts";
import { DigestSum } from "./digest.ts";
import { SqliteKeys } from "./keys.ts";
import { StoreRowWriter } from "./store-row.ts";

/** The effect of a batch of writes. */
export interface Commit {
  /** The greatest id after the batch. */
  readonly lastId: TodoId;
  /** The sequence numbers before the batch and of its last event. */
  readonly startSequence: number;
  readonly lastSequence: number;
  /** The titles of the created to-dos as JSON strings, one per line, because one string is posted faster than many. */
  readonly titles: string;
  /** The events, one per line. */
  readonly events: string;
  /** The other changed to-dos: their `done`, or `undefined` for deleted ones, and their JSON before the batch. */
  readonly changed: readonly (readonly [id: TodoId, done: boolean | undefined, before: string])[];
  /** The hashes of idempotency keys to delete, before the new records are added, because a new record may have the same key. */
  readonly evicted: readonly string[];
  readonly idempotencyRecords: readonly IdempotencyRecord[];
}

export type WriterRequest =
  | { readonly type: "open"; readonly path: string; readonly maxEvents: number }
  /** The value is whether the structure of the file is sound. */
  | { readonly type: "check" }
  | { readonly type: "commit"; readonly commit: Commit }
  | { readonly type: "insertKey"; readonly key: StoredKey }
  | {
      readonly type: "replaceKey";
      readonly id: string;
      readonly expiresAt: number;
      readonly successor: StoredKey;
    }
  | { readonly type: "deleteKey"; readonly id: string }
  | { readonly type: "touchKeys"; readonly uses: ReadonlyMap<string, number> }
  | { readonly type: "close" };

export type WriterReply =
  /** The request is on disk. The value is the result of the KeyStore's call. */
  | { readonly type: "done"; readonly value: boolean }
  /** The request was rolled back. After a failed fsync and a crash, the next start may still find it. */
  | { readonly type: "failed"; readonly reason: string };

class Writer {
  readonly #path: string;
  readonly #file: BigIntStats;
  readonly #database: Database;
  readonly #keys: SqliteKeys;
  readonly #maxEvents: number;
  /** The sequence number at which old events are deleted next. Rare, because it costs a tenth of a batch. */
  #deleteOldEventsAt = 0;
  readonly #insert: Statement;
  readonly #update: Statement;
  readonly #delete: Statement;
  readonly #addEvents: Statement;
  readonly #deleteOldEvents: Statement;
  readonly #addIdempotencyRecord: Statement;
  readonly #deleteIdempotencyRecord: Statement;
  readonly #deleteExpiredIdempotencyRecords: Statement;
  readonly #storeRow: StoreRowWriter;

  constructor(path: string, maxEvents: number) {
    const database = connect(path);
    this.#path = path;
    this.#file = statSync(path, { bigint: true });
    this.#database = database;
    this.#keys = new SqliteKeys(database);
    this.#maxEvents = maxEvents;
    this.#insert = database.query("INSERT INTO todos (id, title, done) VALUES (?, ?, 0)");
    this.#update = database.query("UPDATE todos SET done = ? WHERE id = ?");
    this.#delete = database.query("DELETE FROM todos WHERE id = ?");
    this.#addEvents = database.query("INSERT INTO events (last_n, events) VALUES (?, ?)");
    this.#deleteOldEvents = database.query("DELETE FROM events WHERE last_n <= ?");
    this.#addIdempotencyRecord = database.query("INSERT OR REPLACE INTO receipts VALUES (?, ?, ?, ?)");
    this.#deleteIdempotencyRecord = database.query("DELETE FROM receipts WHERE key_hash = ?");
    this.#deleteExpiredIdempotencyRecords = database.query("DELETE FROM receipts WHERE made_at <= ?");
    this.#storeRow = new StoreRowWriter(database);
  }

  serve(request: Exclude<WriterRequest, { type: "open" }>): boolean {
    if (request.type !== "close") this.#requireInPlace();
    switch (request.type) {
      case "commit":
        this.#commit(request.commit);
        return true;
      case "check":
        return findStructuralDamage(this.#database).length === 0;
      case "insertKey":
        return this.#keys.insert(request.key);
      case "replaceKey":
        return this.#keys.replace(request.id, request.expiresAt, request.successor);
      case "deleteKey":
        return this.#keys.delete(request.id);
      case "touchKeys":
        this.#database.transaction(() => {
          for (const [id, usedAt] of request.uses) this.#keys.recordUse(id, usedAt);
        })();
        return true;
      case "close":
        this.#database.close();
        return true;
    }
  }

  /** Throws if the file was moved or removed: writes would succeed, but the next start would not find them. */
  #requireInPlace(): void {
    const file = statSync(this.#path, { bigint: true, throwIfNoEntry: false });
    if (file?.ino === this.#file.ino && file.dev === this.#file.dev) return;
    throw new Error(`${this.#path} was moved, removed or replaced: put the file back`);
  }

  #commit(commit: Commit): void {
    this.#database.run("BEGIN IMMEDIATE");
    try {
      this.#write(commit);
      this.#database.run("COMMIT");
    } catch (error) {
      // SQLite has already rolled back after some errors.
      if (this.#database.inTransaction) this.#database.run("ROLLBACK");
      throw error;
    }
  }

  #write(commit: Commit): void {
    const { lastId, startSequence, lastSequence, titles, events, changed, evicted, idempotencyRecords } =
      commit;
    const before = this.#storeRow.read();
    if (before.n !== BigInt(startSequence))
      throw new Error("another program has changed the store: restart the server");
    const sum = new DigestSum();
    const created = titles === "" ? [] : titles.split("\n");
    let id = lastId - BigInt(created.length);
    for (const title of created) {
      this.#insert.run(++id, title);
      sum.add(`{"id":${id},"title":${title},"done":false}`);
    }
    for (const [changedId, done, json] of changed) {
      sum.subtract(json);
      if (done === undefined) {
        this.#delete.run(changedId);
      } else {
        this.#update.run(done ? 1 : 0, changedId);
        sum.add(withDone(json, done));
      }
    }
    this.#storeRow.write(before, { last_id: lastId, n: BigInt(lastSequence) }, sum.value);
    this.#addEvents.run(lastSequence, events);
    if (lastSequence >= this.#deleteOldEventsAt) {
      this.#deleteOldEvents.run(lastSequence - this.#maxEvents);
      this.#deleteOldEventsAt = lastSequence + this.#maxEvents / 10;
    }
    for (const keyHash of evicted) this.#deleteIdempotencyRecord.run(keyHash);
    for (const { keyHash, titleHash, id: createdId, madeAt } of idempotencyRecords) {
      this.#deleteExpiredIdempotencyRecords.run(madeAt - RETENTION_MS);
      this.#addIdempotencyRecord.run(keyHash, titleHash, createdId, madeAt);
    }
  }
}

let writer: Writer | undefined;

function serve(request: WriterRequest): boolean {
  if (request.type === "open") writer = new Writer(request.path, request.maxEvents);
  else if (writer === undefined) throw new Error("the writer thread has not opened a file");
  else return writer.serve(request);
  return true;
}

declare const self: Worker;

self.onmessage = ({ data }: MessageEvent<WriterRequest>) => {
  let reply: WriterReply;
  try {
    reply = { type: "done", value: serve(data) };
  } catch (error) {
    reply = { type: "failed", reason: errorMessage(error) };
  }
  self.postMessage(reply);
};
