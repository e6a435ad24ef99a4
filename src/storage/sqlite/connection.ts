import { type Database, SQLiteError } from "bun:sqlite";
import { acquireLock, type Lock } from "./lock.ts";
import { assertHasSchema, assertKnownFormat, isCurrent, migrate } from "./migrations.ts";
import { openFile } from "./open-file.ts";

/** How long a connection waits for the lock of another. */
export const BUSY_TIMEOUT_MS = 5000;

/** Opens a connection and verifies that it is durable: journal mode WAL and synchronous=FULL. */
export function connect(path: string): Database {
  const database = openFile(path, { create: true, safeIntegers: true });
  try {
    database.run(`PRAGMA busy_timeout = ${BUSY_TIMEOUT_MS}`);
    // In one transaction, because another process may be creating the file.
    database.transaction(assertOwnSchema)(database);
    const mode = setWal(database);
    database.run("PRAGMA synchronous = FULL");
    const level = database.query<{ synchronous: bigint }, []>("PRAGMA synchronous").get()?.synchronous;
    if (mode === "wal" && level === 2n) return database;
    throw new Error(
      `SQLite cannot make writes durable there (journal mode ${mode}, synchronous ${level}): use a local disk`,
    );
  } catch (error) {
    database.close();
    throw error;
  }
}

/** Opens a store for reading only. A server may be using it. Throws for another program's database. */
export function connectReadOnly(path: string): Database {
  const database = openFile(path, { readonly: true, safeIntegers: true });
  try {
    database.run(`PRAGMA busy_timeout = ${BUSY_TIMEOUT_MS}`);
    assertOwnSchema(database);
    return database;
  } catch (error) {
    database.close();
    throw error;
  }
}

/** Throws if a file has no schema, and changes nothing. */
export function assertNotEmpty(path: string): void {
  using database = connectReadOnly(path);
  assertHasSchema(database);
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
export function assertOwnSchema(database: Database): void {
  const version = assertKnownFormat(database);
  const [{ tables, stores } = { tables: 0n, stores: 0n }] = database
    .query<{ tables: bigint; stores: bigint }, []>(
      "SELECT count(*) AS tables, count(*) FILTER (WHERE name = 'store') AS stores FROM sqlite_schema",
    )
    .all();
  if (version === 0 ? tables > 0n : stores === 0n) {
    throw new Error("it is the database of another program: name another file");
  }
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

function migrateAlone(path: string, database: Database): void {
  let lock: Lock;
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
