/**
 * The lock of a store. Bun has no `flock`, so SQLite's locks on a database of their own stand for it: RESERVED excludes other
 * servers and commands that need the store for themselves, and EXCLUSIVE also says that a server answers requests.
 */
import { Database, SQLiteError } from "bun:sqlite";
import { existsSync, readFileSync, rmSync, truncateSync } from "node:fs";
import { describeFsError } from "../../error-message.ts";
import { describeAccessError, openError, whyNotWritable } from "./errors.ts";
import { createPrivate, type FileIdentity, isSame, statRegularFile } from "./files.ts";

export interface Lock extends Disposable {
  /** The identity of the lock file. */
  readonly identity: FileIdentity;
  /** To be called before a server reads the API keys that it starts with: commands that change them wait for it from now on. */
  readonly serve: () => void;
  readonly close: () => void;
}

/** Locks a store. The operating system releases the lock when the process ends, even after a crash. Throws as `openSqlite` does. */
export function acquireLock(path: string): Lock {
  const file = `${path}-lock`;
  createPrivate(file);
  const { identity, database } = openLock(path);
  // Another process may have removed the file before it released its lock.
  if (identity === undefined || !isSame(identity, statRegularFile(file))) {
    database.close();
    return acquireLock(path);
  }
  const close = (): void => {
    // A command that failed to create a store leaves no lock.
    if (!existsSync(path) && isSame(identity, statRegularFile(file))) rmSync(file);
    database.close();
  };
  const serve = (): void => {
    // The lock of a commit stays.
    try {
      for (const step of ["PRAGMA locking_mode = EXCLUSIVE", "PRAGMA user_version = 1", "COMMIT"])
        database.run(step);
    } catch (cause) {
      // On a read-only file system, SQLite begins a transaction without a lock.
      throw openError(`${path} cannot be locked: ${describeAccessError(path, cause)}`, cause);
    }
  };
  return { identity, serve, close, [Symbol.dispose]: close };
}

const CHECK_FOLDER = "check that its folder exists, that its disk is mounted, and that you may write to it";

function openLock(path: string): {
  readonly identity: FileIdentity | undefined;
  readonly database: Database;
} {
  const file = `${path}-lock`;
  let database: Database | undefined;
  try {
    const identity = statRegularFile(file);
    // SQLite follows symbolic links, so it must not create the file.
    database = new Database(file, { create: false, readwrite: true });
    // A server keeps the lock while it runs; a migration releases it soon.
    database.run("PRAGMA busy_timeout = 1000");
    // Its contents mean nothing, so it needs no journal on disk and no fsync.
    database.run("PRAGMA journal_mode = MEMORY");
    database.run("PRAGMA synchronous = OFF");
    database.run("BEGIN IMMEDIATE");
    return { identity, database };
  } catch (cause) {
    database?.close();
    if (isTorn(file, cause)) {
      truncateSync(file);
      return openLock(path);
    }
    if (database === undefined) {
      const reason = cause instanceof SQLiteError ? CHECK_FOLDER : describeFsError(cause);
      throw openError(`${file} cannot be opened: ${whyNotWritable(file) ?? reason}`, cause);
    }
    if (cause instanceof SQLiteError && cause.code === "SQLITE_BUSY") {
      throw openError(`${path} is in use by another server: stop it first`, cause);
    }
    throw openError(`${path} cannot be locked: ${describeAccessError(path, cause)}`, cause);
  }
}

/** Returns whether another process has locked a store. Creates no file. */
export const isLocked = (path: string): boolean =>
  statRegularFile(`${path}-lock`) !== undefined && isBusy(`${path}-lock`, "BEGIN IMMEDIATE", 1000);

/** Returns whether a server answers requests from a store. Creates no file. */
export const isServed = (path: string): boolean =>
  existsSync(`${path}-lock`) && isBusy(`${path}-lock`, "SELECT count(*) FROM sqlite_schema");

/** Returns whether a lock of another connection keeps a database from running a statement for this long. */
export function isBusy(file: string, statement: string, timeoutMs = 0): boolean {
  using database = new Database(file, { create: false, readwrite: true });
  try {
    database.run(`PRAGMA busy_timeout = ${timeoutMs}`);
    database.query(statement).get();
    return false;
  } catch (error) {
    if (isTorn(file, error)) return false;
    if (error instanceof SQLiteError && error.code === "SQLITE_BUSY") return true;
    throw error;
  }
}

/**
 * Whether a power cut left a part of a database: zeros, or the beginning. Who could read it found no lock. A file with other
 * contents belongs to someone else.
 */
function isTorn(file: string, error: unknown): boolean {
  if (!(error instanceof SQLiteError && /^SQLITE_(?:NOTADB|CORRUPT)/.test(error.code ?? ""))) return false;
  const head = readFileSync(file).subarray(0, HEADER.length);
  return head.equals(HEADER) || head.every((byte) => byte === 0);
}

const HEADER = Buffer.from("SQLite format 3\0");
