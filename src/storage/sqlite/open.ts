import { Database, SQLiteError } from "bun:sqlite";
import { assertNotOnlyWal, createPrivate } from "./files.ts";
import { acquireLock, type Lock } from "./lock.ts";
import { assertKnownFormat, getUserVersion, isCurrent, migrate } from "./migrations.ts";

/** A WAL without a long reader has about 4 MB and is reused. SQLite shortens a longer one when it starts again. */
export const WAL_SIZE_LIMIT = 8 * 1024 * 1024;
/** How long a connection waits for the lock of another. */
const BUSY_TIMEOUT_MS = 5000;

/**
 * How to open a database:
 * - `server`: creates and migrates it. The caller has the lock of the store.
 * - `shared`: for writing beside a server. Creates a missing file, and migrates it if no server uses it.
 * - `readOnly`: changes nothing, also not the WAL when it closes. A server may be using the store.
 * - `exclusive`: a copy that no other process knows. It gets no WAL, so that all data is in one file.
 */
export type OpenMode = "server" | "shared" | "readOnly" | "exclusive";

/**
 * Opens a database. Throws for another program's database, before it writes anything, and if acknowledged writes would not
 * be durable. Throws a PreconditionError if only the WAL is left, because SQLite would delete it.
 */
export function openDatabase(path: string, mode: OpenMode): Database {
  assertNotOnlyWal(path);
  const canCreate = mode === "server" || mode === "shared";
  if (canCreate) createPrivate(path);
  const access = mode === "readOnly" ? { readonly: true } : { create: canCreate, readwrite: true };
  const database = new Database(path, { ...access, safeIntegers: true });
  try {
    prepare(path, database, mode);
    return database;
  } catch (error) {
    database.close();
    throw error;
  }
}

function prepare(path: string, database: Database, mode: OpenMode): void {
  database.run(`PRAGMA busy_timeout = ${BUSY_TIMEOUT_MS}`);
  // In one transaction, because another process may be creating the file.
  database.transaction(assertOwnSchema)(database);
  if (mode === "readOnly") return;
  if (mode === "exclusive") {
    database.run("PRAGMA journal_mode = DELETE");
    return;
  }
  makeDurable(database);
  if (isCurrent(database)) return;
  if (mode === "server") migrate(database);
  else migrateAlone(path, database);
}

/** Sets the journal mode WAL and synchronous=FULL, and reads them back. */
function makeDurable(database: Database): void {
  const mode = setWal(database);
  database.run("PRAGMA synchronous = FULL");
  // Without it, fsync on macOS does not even keep the writes of the drive in order.
  database.run("PRAGMA fullfsync = ON");
  // The server makes the checkpoints, because it checks the files before.
  database.run("PRAGMA wal_autocheckpoint = 0");
  database.run(`PRAGMA journal_size_limit = ${WAL_SIZE_LIMIT}`);
  const level = database.query<{ synchronous: bigint }, []>("PRAGMA synchronous").get()?.synchronous;
  if (mode === "wal" && level === 2n) return;
  throw new Error(
    `SQLite cannot make writes durable there (journal mode ${mode}, synchronous ${level}): use a local disk`,
  );
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

/** Throws for another program's database. */
function assertOwnSchema(database: Database): void {
  const [{ tables, stores } = { tables: 0n, stores: 0n }] = database
    .query<{ tables: bigint; stores: bigint }, []>(
      "SELECT count(*) AS tables, count(*) FILTER (WHERE name = 'store') AS stores FROM sqlite_schema",
    )
    .all();
  if (getUserVersion(database) === 0 ? tables > 0n : stores === 0n)
    throw new Error("it is the database of another program: name another file");
  assertKnownFormat(database);
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
  using _ = lock;
  migrate(database);
}

/** Opens a store for writing beside a server. Throws if it is empty, and changes nothing then. */
export function openExisting(path: string): Database {
  using found = openDatabase(path, "readOnly");
  if (assertKnownFormat(found) > 0) return openDatabase(path, "shared");
  throw new Error("it is empty: check the path of the store, or restore a backup with todo restore");
}
