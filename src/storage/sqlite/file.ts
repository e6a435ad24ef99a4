import { Database, SQLiteError } from "bun:sqlite";
import { randomBytes } from "node:crypto";
import { ChangeFeed } from "../../change-feed.ts";
import { errorMessage } from "../../error-message.ts";
import type { TodoId } from "../../todo.ts";
import { decodeEvents } from "../records/event-codec.ts";
import { type IdempotencyRecord, IdempotencyRecords } from "../records/idempotency.ts";
import type { DEFAULTS } from "../store.ts";
import { Table } from "../table/table.ts";

/** All migrations of the file, in order. A released migration must never change. */
const MIGRATIONS: readonly string[] = [
  `-- A title is its JSON string: so it can hold U+0000, and is encoded once.
   CREATE TABLE todos (id INTEGER PRIMARY KEY, title TEXT NOT NULL, done INTEGER NOT NULL) STRICT;
   CREATE TABLE events (n INTEGER PRIMARY KEY, type TEXT NOT NULL, id INTEGER NOT NULL, json TEXT) STRICT;
   CREATE TABLE store (epoch TEXT NOT NULL, last_id INTEGER NOT NULL, n INTEGER NOT NULL) STRICT;`,

  `-- The events of a batch are one row, a line each: a row each cost more than the to-dos themselves.
   DROP TABLE events;
   CREATE TABLE events (last_n INTEGER PRIMARY KEY, events TEXT NOT NULL) STRICT;
   CREATE TABLE receipts (
     key_hash TEXT PRIMARY KEY, title_hash TEXT NOT NULL, id INTEGER NOT NULL, made_at INTEGER NOT NULL
   ) STRICT, WITHOUT ROWID;
   CREATE INDEX receipts_by_age ON receipts (made_at);
   CREATE TABLE keys (
     id TEXT PRIMARY KEY, name TEXT NOT NULL, token_hash BLOB NOT NULL UNIQUE,
     created_at INTEGER NOT NULL, expires_at INTEGER, last_used_at INTEGER, lifetime INTEGER
   ) STRICT;`,
];

/** An SQL expression for the JSON of a row of `todos`. */
export const TODO_JSON = `'{"id":' || id || ',"title":' || title || ',"done":' || iif(done, 'true', 'false') || '}'`;

/** The contents of a file. */
export interface State {
  readonly epoch: string;
  readonly table: Table;
  readonly feed: ChangeFeed;
  readonly receipts: IdempotencyRecords;
  readonly lastId: TodoId;
  readonly n: number;
}

/** Locks a store. The operating system releases the lock when the process ends, even after a crash. */
export function acquireLock(path: string): Database {
  let lock: Database | undefined;
  try {
    lock = new Database(`${path}-lock`, { create: true });
    // A server keeps the lock while it runs; a migration releases it soon.
    lock.run("PRAGMA busy_timeout = 1000");
    lock.run("BEGIN EXCLUSIVE");
    return lock;
  } catch (cause) {
    lock?.close();
    if (lock === undefined) throw new Error(`${path} cannot be made or opened`, { cause });
    if (cause instanceof SQLiteError && cause.code === "SQLITE_BUSY") {
      throw new Error(`${path} is in use by another server: stop it first`, { cause });
    }
    throw new Error(`${path} cannot be locked: ${errorMessage(cause)}`, { cause });
  }
}

/** Loads the contents of a file into memory. */
export function load(database: Database, { maxTodos, maxEvents, now }: typeof DEFAULTS): State {
  const { epoch, last_id, n } = storeRow(database);
  const table = new Table();
  const todos = database.query<{ id: bigint; json: string }, []>(
    `SELECT id, ${TODO_JSON} AS json FROM todos ORDER BY id`,
  );
  for (const { id, json } of todos.iterate()) table.append(id, json);
  const receipts = new IdempotencyRecords(maxTodos, now);
  for (const receipt of storedReceipts(database)) receipts.add(receipt);
  const feed = loadFeed(database, epoch, Number(n), maxEvents);
  return { epoch, table, feed, receipts, lastId: last_id, n: Number(n) };
}

/** Returns the only row of the table `store`. */
export function storeRow(database: Database): { epoch: string; last_id: bigint; n: bigint } {
  const row = database.query<ReturnType<typeof storeRow>, []>("SELECT * FROM store").get();
  if (row === null) throw new Error("it has no row in store");
  return row;
}

function* storedReceipts(database: Database): Generator<IdempotencyRecord> {
  const rows = database.query<{ key_hash: string; title_hash: string; id: bigint; made_at: bigint }, []>(
    "SELECT * FROM receipts ORDER BY made_at, id",
  );
  for (const { key_hash, title_hash, id, made_at } of rows.iterate()) {
    yield { keyHash: key_hash, titleHash: title_hash, id, madeAt: Number(made_at) };
  }
}

function loadFeed(database: Database, epoch: string, last: number, maxEvents: number): ChangeFeed {
  const rows = database
    .query<{ events: string }, [number]>("SELECT events FROM events WHERE last_n > ? ORDER BY last_n")
    .all(last - maxEvents);
  const lines = rows.map(({ events }) => events).join("\n");
  const events = lines === "" ? [] : decodeEvents(lines, { epoch, sequence: last });
  const feed = new ChangeFeed(maxEvents, last - events.length);
  for (const event of events) feed.publish(event);
  return feed;
}

/** How long a connection waits for the lock of another. */
const BUSY_TIMEOUT_MS = 5000;

/** Opens a connection and verifies that it is durable: journal mode WAL and synchronous=FULL. */
export function connect(path: string): Database {
  const database = new Database(path, { create: true, safeIntegers: true });
  try {
    database.run(`PRAGMA busy_timeout = ${BUSY_TIMEOUT_MS}`);
    // In one transaction, because another process may be creating the file.
    database.transaction(assertOwnSchema)(database);
    const mode = setWal(database);
    database.run("PRAGMA synchronous = FULL");
    const level = database.query<{ synchronous: bigint }, []>("PRAGMA synchronous").get()?.synchronous;
    if (mode === "wal" && level === 2n) return database;
    throw new Error(`it cannot be made durable: journal mode ${mode}, synchronous ${level}`);
  } catch (error) {
    database.close();
    throw error;
  }
}

/** Sets WAL and returns the journal mode. Retries, because this pragma ignores busy_timeout. */
function setWal(database: Database): string | undefined {
  const deadline = performance.now() + BUSY_TIMEOUT_MS;
  while (true) {
    try {
      return database.query<{ journal_mode: string }, []>("PRAGMA journal_mode = WAL").get()?.journal_mode;
    } catch (error) {
      if (performance.now() > deadline || !(error instanceof SQLiteError && error.code === "SQLITE_BUSY"))
        throw error;
      Bun.sleepSync(10);
    }
  }
}

/** Throws for another program's database, before anything is written to it. */
function assertOwnSchema(database: Database): void {
  const version = assertKnownFormat(database);
  const [{ tables, stores } = { tables: 0n, stores: 0n }] = database
    .query<{ tables: bigint; stores: bigint }, []>(
      "SELECT count(*) AS tables, count(*) FILTER (WHERE name = 'store') AS stores FROM sqlite_schema",
    )
    .all();
  if (version === 0 ? tables > 0n : stores === 0n) {
    throw new Error("it is a database of something else: name another file");
  }
}

/** Applies the missing migrations. The caller must hold the lock. */
export function migrate(database: Database): void {
  const version = assertKnownFormat(database);
  database.transaction(() => {
    for (const migration of MIGRATIONS.slice(version)) database.run(migration);
    if (version === 0) database.run("INSERT INTO store VALUES (?, 0, 0)", [newEpoch()]);
    database.run(`PRAGMA user_version = ${MIGRATIONS.length}`);
  })();
}

/** Returns the number of applied migrations. Throws if a newer version wrote the file. */
export function assertKnownFormat(database: Database): number {
  const version = Number(
    database.query<{ user_version: bigint }, []>("PRAGMA user_version").get()?.user_version,
  );
  if (version <= MIGRATIONS.length) return version;
  throw new Error(
    `it was written by a newer version of this program (format ${version}, known up to ${MIGRATIONS.length})`,
  );
}

/** Opens a file that a server may be using. Applies missing migrations if no server uses it. */
export function connectShared(path: string): Database {
  const database = connect(path);
  try {
    if (!isCurrent(database)) migrateAlone(path, database);
    return database;
  } catch (error) {
    database.close();
    throw error;
  }
}

const isCurrent = (database: Database): boolean => assertKnownFormat(database) === MIGRATIONS.length;

function migrateAlone(path: string, database: Database): void {
  let lock: Database;
  try {
    lock = acquireLock(path);
  } catch (error) {
    // A server that has just started may have migrated the file. It keeps the lock.
    if (isCurrent(database)) return;
    throw error;
  }
  try {
    migrate(database);
  } finally {
    lock.close();
  }
}

export const newEpoch = (): string => randomBytes(8).toString("hex");
