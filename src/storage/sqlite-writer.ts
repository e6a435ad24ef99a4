/** The thread that writes to a SQLite file, so that a slow disk stalls nobody but those whose writes it holds. */
import type { Database, Statement } from "bun:sqlite";
import type { TodoId } from "../todo.ts";
import { openDatabase } from "./sqlite-file.ts";

export type Change =
  | { readonly type: "created"; readonly id: TodoId; readonly title: string; readonly json: string }
  | { readonly type: "updated"; readonly id: TodoId; readonly done: boolean }
  | { readonly type: "deleted"; readonly id: TodoId };

export type WriterRequest =
  | { readonly type: "open"; readonly path: string; readonly maxEvents: number }
  /** The changes after position `n`, and the last id there is with them. */
  | {
      readonly type: "commit";
      readonly lastId: TodoId;
      readonly n: number;
      readonly changes: readonly Change[];
    }
  | { readonly type: "close" };

export interface WriterReply {
  /** What went wrong; then nothing of the request was done. */
  readonly error?: string;
}

const BUILT = `'{"id":' || id || ',"title":' || title || ',"done":' || iif(done, 'true', 'false') || '}'`;

class Writer {
  readonly #database: Database;
  readonly #maxEvents: number;
  readonly #insert: Statement;
  readonly #update: Statement;
  readonly #delete: Statement;
  readonly #event: Statement;
  readonly #forget: Statement;
  readonly #state: Statement;

  constructor(path: string, maxEvents: number) {
    const database = openDatabase(path);
    this.#database = database;
    this.#maxEvents = maxEvents;
    this.#insert = database.query("INSERT INTO todos (id, title, done) VALUES (?, ?, 0)");
    this.#update = database.query("UPDATE todos SET done = ? WHERE id = ?");
    this.#delete = database.query("DELETE FROM todos WHERE id = ?");
    this.#event = database.query(
      `INSERT INTO events (n, type, id, json)
       VALUES (?1, ?2, ?3, coalesce(?4, iif(?2 = 'updated', (SELECT ${BUILT} FROM todos WHERE id = ?3), NULL)))`,
    );
    this.#forget = database.query("DELETE FROM events WHERE n <= ?");
    this.#state = database.query("UPDATE store SET last_id = ?, n = ?");
  }

  /** All of it, on disk when this returns; or nothing, and it throws. */
  commit(lastId: TodoId, n: number, changes: readonly Change[]): void {
    this.#database.run("BEGIN IMMEDIATE");
    try {
      for (const [index, change] of changes.entries()) this.#write(n + 1 + index, change);
      this.#forget.run(n + changes.length - this.#maxEvents);
      this.#state.run(lastId, n + changes.length);
      this.#database.run("COMMIT");
    } catch (error) {
      // Some errors roll back by themselves.
      if (this.#database.inTransaction) this.#database.run("ROLLBACK");
      throw error;
    }
  }

  close(): void {
    this.#database.close();
  }

  #write(n: number, change: Change): void {
    if (change.type === "created") this.#insert.run(change.id, change.title);
    else if (change.type === "updated") this.#update.run(change.done ? 1 : 0, change.id);
    else this.#delete.run(change.id);
    this.#event.run(n, change.type, change.id, change.type === "created" ? change.json : null);
  }
}

let writer: Writer | undefined;

function serve(request: WriterRequest): void {
  if (request.type === "open") writer = new Writer(request.path, request.maxEvents);
  else if (request.type === "commit") writer?.commit(request.lastId, request.n, request.changes);
  else writer?.close();
}

declare const self: Worker;

self.onmessage = ({ data }: MessageEvent<WriterRequest>) => {
  let reply: WriterReply = {};
  try {
    serve(data);
  } catch (error) {
    reply = { error: error instanceof Error ? error.message : String(error) };
  }
  self.postMessage(reply);
};
