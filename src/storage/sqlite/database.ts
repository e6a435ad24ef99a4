/** The database of a store: its schema, how it is opened, and what its errors mean. */
import { Database } from "bun:sqlite";
import { existsSync } from "node:fs";
import { describeFsError, errorMessage, getErrno } from "../../error-message.ts";
import { asStoreError, isTemporary } from "../failure.ts";
import { PreconditionError } from "../maintenance.ts";
import { StoreUnavailableError } from "../store.ts";
import { createPrivate, sizeOf, WAL_SIZE_LIMIT, whyNotWritable } from "./files.ts";
import { findRescueFiles, quoteArgument, waysOut } from "./rescue.ts";
import { insertCounters } from "./rows.ts";

/** The format of the schema. Formats 1 and 2 were never released. */
export const FORMAT = 3;

/** Each row has the CRC-32 of its other values. */
const SCHEMA = `
  -- A to-do is encoded once, as responses and events have it.
  CREATE TABLE todos (id INTEGER PRIMARY KEY, json TEXT NOT NULL, crc INTEGER NOT NULL) STRICT;
  -- The events of a batch are one row, a line each: a row each cost more than the to-dos themselves.
  CREATE TABLE events (
    last_sequence INTEGER PRIMARY KEY, epoch TEXT NOT NULL, events TEXT NOT NULL, crc INTEGER NOT NULL
  ) STRICT;
  CREATE TABLE idempotency_records (
    key_hash TEXT PRIMARY KEY, title_hash TEXT NOT NULL, id INTEGER NOT NULL, created_at INTEGER NOT NULL, crc INTEGER NOT NULL
  ) STRICT, WITHOUT ROWID;
  CREATE TABLE keys (
    id TEXT PRIMARY KEY, name TEXT NOT NULL, token_hash BLOB NOT NULL UNIQUE,
    created_at INTEGER NOT NULL, expires_at INTEGER, last_used_at INTEGER, lifetime INTEGER,
    scope TEXT NOT NULL, made_with TEXT, crc INTEGER NOT NULL
  ) STRICT;
  CREATE TABLE store (
    id TEXT NOT NULL, epoch TEXT NOT NULL, sequence INTEGER NOT NULL, last_id INTEGER NOT NULL, checksum INTEGER NOT NULL,
    key_changes INTEGER NOT NULL, keys_used INTEGER NOT NULL, crc INTEGER NOT NULL
  ) STRICT;`;

/** How long a connection waits for the lock of another. */
const BUSY_TIMEOUT_MS = 5000;

/**
 * Opens the database of a store. Throws for another program's database, before it writes anything. With `read`, the connection
 * changes nothing, also not when it is the last one to close: SQLite would otherwise move the WAL to the database.
 * @param name the file that an error names
 */
export function openDatabase(path: string, access: "read" | "write", name = path): Database {
  const empty = `${name}: it is empty: check the path of the store, or restore a backup with todo restore`;
  // SQLite would delete its WAL.
  if (existsSync(path) && sizeOf(path) === 0) throw new PreconditionError(empty);
  const database = connect(path, access);
  try {
    if (!isStore(name, database)) throw new PreconditionError(empty);
    if (access === "write") makeDurable(database);
    return database;
  } catch (error) {
    database.close();
    throw error;
  }
}

/**
 * Creates the database of a store unless it exists. Returns whether it did. A new one has no WAL, so that a copy of the file alone is
 * a store.
 */
export function createDatabase(path: string): boolean {
  assertNothingLeft(path);
  // A journal is left of a creation that was cut off, and only a connection that writes can roll it back.
  if (sizeOf(path) > 0 && !existsSync(`${path}-journal`)) {
    using reader = connect(path, "read");
    if (isStore(path, reader)) return false;
  }
  createPrivate(path);
  using database = connect(path, "write");
  if (isStore(path, database)) return false;
  makeDurable(database);
  // In a transaction, because another process may be creating it.
  return database
    .transaction(() => {
      if (isStore(path, database)) return false;
      database.run(SCHEMA);
      insertCounters(database);
      database.run(`PRAGMA user_version = ${FORMAT}`);
      return true;
    })
    .immediate();
}

/** Throws if a missing or empty file was a store: SQLite would delete its WAL, or a new store would take its place. */
export function assertNothingLeft(path: string): void {
  // The files beside it come first, because another process may be creating the store: SQLite writes the database before.
  const left = ["-wal", "-mark"].map((suffix) => path + suffix).filter((file) => sizeOf(file) > 0);
  left.push(...findRescueFiles(path));
  const size = sizeOf(path);
  if (left.length === 0 || size > 0) return;
  const move = `move ${left.map(quoteArgument).join(" ")} to another folder to start with an empty list`;
  throw new PreconditionError(
    `${path}: it is missing or empty, but there is ${left.join(" and ")}: ${waysOut(path, move)}`,
  );
}

function connect(path: string, access: "read" | "write"): Database {
  const flags = access === "read" ? { readonly: true } : { readwrite: true, create: false };
  const database = new Database(path, { ...flags, safeIntegers: true });
  database.run(`PRAGMA busy_timeout = ${BUSY_TIMEOUT_MS}`);
  return database;
}

export class ForeignDatabaseError extends PreconditionError {}

/** Returns whether a database has the schema. Throws for another program's database, and for another format. */
function isStore(name: string, database: Database): boolean {
  const sql = "SELECT name FROM sqlite_schema WHERE type = 'table'";
  // In one snapshot, because another process may be creating the store.
  const [version, tables] = database.transaction(
    () =>
      [
        Number(database.query<{ user_version: bigint }, []>("PRAGMA user_version").get()?.user_version),
        database.query<{ name: string }, []>(sql).all(),
      ] as const,
  )();
  if (version === 0 ? tables.length > 0 : !tables.some(({ name }) => name === "store"))
    throw new ForeignDatabaseError(`${name}: it is the database of another program: name another file`);
  if (version === 0 || version === FORMAT) return version === FORMAT;
  throw new PreconditionError(
    `${name}: it was written by another version of this program (format ${version}; this version has format ${FORMAT}): use that version, or restore an export of it with todo restore`,
  );
}

/** Makes each commit wait until it is on disk: a WAL, and an fsync for each commit. */
function makeDurable(database: Database): void {
  const mode = setWal(database);
  if (mode !== "wal")
    throw new Error(`SQLite cannot make writes durable there (journal mode ${mode}): use a local disk`);
  database.run("PRAGMA synchronous = FULL");
  // Without it, fsync on macOS does not even keep the writes of the drive in order.
  database.run("PRAGMA fullfsync = ON");
  // The server makes the checkpoints, because it checks the files before.
  database.run("PRAGMA wal_autocheckpoint = 0");
  database.run(`PRAGMA journal_size_limit = ${WAL_SIZE_LIMIT}`);
}

/** Sets WAL and returns the journal mode. Retries, because this pragma ignores busy_timeout. */
function setWal(database: Database): string | undefined {
  const deadline = performance.now() + BUSY_TIMEOUT_MS;
  while (true) {
    try {
      return database.query<{ journal_mode: string }, []>("PRAGMA journal_mode = WAL").get()?.journal_mode;
    } catch (error) {
      if (performance.now() > deadline || getErrno(error) !== "SQLITE_BUSY") throw error;
      Bun.sleepSync(10);
    }
  }
}

/** Changes when another connection commits. */
export const dataVersion = (database: Database): bigint =>
  database.query<{ data_version: bigint }, []>("PRAGMA data_version").get()?.data_version ?? 0n;

/** Returns whether an error means that the file is damaged. Any other error of SQLite does, because the statements are correct. */
export const isDamage = (error: unknown): boolean =>
  String(getErrno(error)).startsWith("SQLITE_") && !isTemporary(error);

/**
 * Returns the error of a store that cannot be used, which says what to do: a StoreUnavailableError if the same call may succeed
 * later, otherwise a PreconditionError.
 */
export function openError(path: string, cause: unknown): Error {
  // It says so already.
  if (cause instanceof StoreUnavailableError || cause instanceof PreconditionError) return cause;
  return asStoreError(`${path}: ${describe(path, cause)}`, cause);
}

/** Returns the message of an error. That of SQLite may have line breaks. */
export const oneLine = (error: unknown): string => errorMessage(error).replaceAll(/\s+/g, " ");

function describe(path: string, error: unknown): string {
  const reason = oneLine(describeFsError(error));
  const code = String(getErrno(error));
  if (code === "SQLITE_NOTADB") return `${reason}: name another file; if it was a store, ${waysOut(path)}`;
  if (isDamage(error))
    return `it is damaged (${reason}; todo check has details): ${waysOut(path, "save what can be read with todo export --skip-damaged")}`;
  const isAccess = /^(?:SQLITE_(?:CANTOPEN|READONLY)|EACCES|EPERM|EROFS)/.test(code);
  return (isAccess ? whyNotWritable(path) : undefined) ?? reason;
}
