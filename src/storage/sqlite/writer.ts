/** The thread that writes to a SQLite file, so that a slow disk stalls nobody but those whose writes it holds. */
import type { Database, Statement } from "bun:sqlite";
import { type BigIntStats, statSync } from "node:fs";
import type { StoredKey } from "../../credential/key.ts";
import type { TodoId } from "../../todo.ts";
import { createdTitle } from "../event-line.ts";
import { KEPT_FOR, type Receipt } from "../receipt.ts";
import { connect } from "./file.ts";
import { SqliteKeys } from "./keys.ts";

/** What a batch of writes comes to. */
export interface Commit {
  /** The last id there is with it. */
  readonly lastId: TodoId;
  /** The position before it, and that of its last event. */
  readonly startN: number;
  readonly lastN: number;
  /** Its events, a line each, with the to-dos it made: one string is sent faster than many. */
  readonly events: string;
  /** What else became of to-dos: their `done`, or `undefined` for deleted. */
  readonly changed: readonly (readonly [id: TodoId, done: boolean | undefined])[];
  readonly receipts: readonly Receipt[];
}

export type WriterRequest =
  | { readonly type: "open"; readonly path: string; readonly maxEvents: number }
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
  /** It is on disk. The value is what a KeyStore's call gives. */
  | { readonly type: "done"; readonly value: boolean }
  /** Nothing of it is to be seen, though after a failed fsync and then a crash the next start may find it. */
  | { readonly type: "failed"; readonly reason: string };

class Writer {
  readonly #path: string;
  readonly #file: BigIntStats;
  readonly #database: Database;
  readonly #keys: SqliteKeys;
  readonly #maxEvents: number;
  /** The position at which events are forgotten next: seldom, for it costs a tenth of a batch. */
  #forgetAt = 0;
  readonly #insert: Statement;
  readonly #update: Statement;
  readonly #delete: Statement;
  readonly #addEvents: Statement;
  readonly #forgetEvents: Statement;
  readonly #addReceipt: Statement;
  readonly #forgetReceipts: Statement;
  readonly #state: Statement;

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
    this.#forgetEvents = database.query("DELETE FROM events WHERE last_n <= ?");
    this.#addReceipt = database.query("INSERT OR REPLACE INTO receipts VALUES (?, ?, ?, ?)");
    this.#forgetReceipts = database.query("DELETE FROM receipts WHERE made_at <= ?");
    this.#state = database.query("UPDATE store SET last_id = ?, n = ? WHERE n = ?");
  }

  serve(request: Exclude<WriterRequest, { type: "open" }>): boolean {
    if (request.type !== "close") this.#requireInPlace();
    switch (request.type) {
      case "commit":
        this.#commit(request.commit);
        return true;
      case "insertKey":
        return this.#keys.insert(request.key);
      case "replaceKey":
        return this.#keys.replace(request.id, request.expiresAt, request.successor);
      case "deleteKey":
        return this.#keys.delete(request.id);
      case "touchKeys":
        this.#database.transaction(() => {
          for (const [id, usedAt] of request.uses) this.#keys.touch(id, usedAt);
        })();
        return true;
      case "close":
        this.#database.close();
        return true;
    }
  }

  /** A file that is moved or removed can be written to still, and no start would find what is written. */
  #requireInPlace(): void {
    const file = statSync(this.#path, { bigint: true, throwIfNoEntry: false });
    if (file?.ino === this.#file.ino && file.dev === this.#file.dev) return;
    throw new Error(`${this.#path} is not there any more, or is another file: put it back`);
  }

  #commit(commit: Commit): void {
    this.#database.run("BEGIN IMMEDIATE");
    try {
      this.#write(commit);
      this.#database.run("COMMIT");
    } catch (error) {
      // Some errors roll back by themselves.
      if (this.#database.inTransaction) this.#database.run("ROLLBACK");
      throw error;
    }
  }

  #write({ lastId, startN, lastN, events, changed, receipts }: Commit): void {
    const { changes } = this.#state.run(lastId, lastN, startN);
    if (changes !== 1) throw new Error("the file is not where this server left it: start it again");
    const titles = events.split("\n").flatMap((line) => createdTitle(line) ?? []);
    let id = lastId - BigInt(titles.length);
    for (const title of titles) this.#insert.run(++id, title);
    for (const [changedId, done] of changed) {
      if (done === undefined) this.#delete.run(changedId);
      else this.#update.run(done ? 1 : 0, changedId);
    }
    this.#addEvents.run(lastN, events);
    if (lastN >= this.#forgetAt) {
      this.#forgetEvents.run(lastN - this.#maxEvents);
      this.#forgetAt = lastN + this.#maxEvents / 10;
    }
    for (const { keyHash, titleHash, id: made, madeAt } of receipts) {
      this.#forgetReceipts.run(madeAt - KEPT_FOR);
      this.#addReceipt.run(keyHash, titleHash, made, madeAt);
    }
  }
}

let writer: Writer | undefined;

function serve(request: WriterRequest): boolean {
  if (request.type === "open") writer = new Writer(request.path, request.maxEvents);
  else if (writer === undefined) throw new Error("nothing is open");
  else return writer.serve(request);
  return true;
}

declare const self: Worker;

self.onmessage = ({ data }: MessageEvent<WriterRequest>) => {
  let reply: WriterReply;
  try {
    reply = { type: "done", value: serve(data) };
  } catch (error) {
    reply = { type: "failed", reason: error instanceof Error ? error.message : String(error) };
  }
  self.postMessage(reply);
};
