import { Database } from "bun:sqlite";
import { randomBytes } from "node:crypto";
import { Feed } from "../event.ts";
import type { TodoId } from "../todo.ts";
import { Table } from "./table.ts";

/** What has been done to the file, in order: a migration once released is never changed. */
const MIGRATIONS: readonly string[] = [
  `-- A title is its JSON string: so it can hold U+0000, and is encoded once.
   CREATE TABLE todos (id INTEGER PRIMARY KEY, title TEXT NOT NULL, done INTEGER NOT NULL) STRICT;
   CREATE TABLE events (n INTEGER PRIMARY KEY, type TEXT NOT NULL, id INTEGER NOT NULL, json TEXT) STRICT;
   CREATE TABLE store (epoch TEXT NOT NULL, last_id INTEGER NOT NULL, n INTEGER NOT NULL) STRICT;`,
];

/** What a file holds. */
export interface State {
  readonly epoch: string;
  readonly table: Table;
  readonly feed: Feed;
  readonly lastId: TodoId;
  readonly n: number;
}

/** Takes a lock that the system lets go when the process ends, however it ends. */
export function takeLock(path: string): Database {
  let lock: Database | undefined;
  try {
    lock = new Database(`${path}-lock`, { create: true });
    lock.run("BEGIN EXCLUSIVE");
    return lock;
  } catch (cause) {
    lock?.close();
    const reason = lock === undefined ? "cannot be made or opened" : "is in use by another server";
    throw new Error(`${path} ${reason}`, { cause });
  }
}

/** Brings the file up to date and reads it. */
export function load(path: string, maxEvents: number): State {
  const database = openDatabase(path);
  try {
    migrate(database);
    const row = database
      .query<{ epoch: string; last_id: bigint; n: bigint }, []>("SELECT * FROM store")
      .get();
    if (row === null) throw new Error("it has no row in store");
    const table = new Table();
    const todos = database.query<{ id: bigint; json: string }, []>(
      `SELECT id, '{"id":' || id || ',"title":' || title || ',"done":' || iif(done, 'true', 'false') || '}' AS json
       FROM todos ORDER BY id`,
    );
    for (const { id, json } of todos.iterate()) table.append(id, json);
    const n = Number(row.n);
    return {
      epoch: row.epoch,
      table,
      feed: loadFeed(database, row.epoch, n, maxEvents),
      lastId: row.last_id,
      n,
    };
  } finally {
    database.close();
  }
}

function loadFeed(database: Database, epoch: string, n: number, maxEvents: number): Feed {
  const events = database
    .query<{ n: bigint; type: string; id: bigint; json: string | null }, [number]>(
      "SELECT n, type, id, json FROM events WHERE n > ? ORDER BY n",
    )
    .all(n - maxEvents);
  const first = events[0] === undefined ? n : Number(events[0].n) - 1;
  const feed = new Feed(maxEvents, first);
  for (const { n, type, id, json } of events) {
    const position = { epoch, n: Number(n) };
    if (json === null) feed.publish({ type: "deleted", position, id });
    else feed.publish({ type: type === "created" ? "created" : "updated", position, id, json });
  }
  return feed;
}

/** Opens the file as every connection here does; reads back what durability rests on. */
export function openDatabase(path: string): Database {
  const database = new Database(path, { create: true, safeIntegers: true });
  const mode = database.query<{ journal_mode: string }, []>("PRAGMA journal_mode = WAL").get()?.journal_mode;
  database.run("PRAGMA synchronous = FULL");
  const level = database.query<{ synchronous: bigint }, []>("PRAGMA synchronous").get()?.synchronous;
  database.run("PRAGMA busy_timeout = 5000");
  if (mode === "wal" && level === 2n) return database;
  database.close();
  throw new Error(`it cannot be made durable: journal mode ${mode}, synchronous ${level}`);
}

function migrate(database: Database): void {
  const version = Number(
    database.query<{ user_version: bigint }, []>("PRAGMA user_version").get()?.user_version,
  );
  if (version > MIGRATIONS.length) {
    throw new Error(
      `it was written by a newer version of this program (format ${version}, known up to ${MIGRATIONS.length})`,
    );
  }
  database.transaction(() => {
    for (const migration of MIGRATIONS.slice(version)) database.run(migration);
    if (version === 0) database.run("INSERT INTO store VALUES (?, 0, 0)", [randomBytes(8).toString("hex")]);
    database.run(`PRAGMA user_version = ${MIGRATIONS.length}`);
  })();
}
