import { Database, SQLiteError } from "bun:sqlite";
import { existsSync, rmSync } from "node:fs";
import { describeFsError } from "../../error-message.ts";
import { describeAccessError, openError, whyNotWritable } from "./errors.ts";
import { createPrivate, type FileIdentity, isSame, statRegularFile } from "./files.ts";

/** The lock of a store. It excludes servers, and commands that need the store for themselves. */
export interface Lock extends Disposable {
  /** The identity of the lock file. */
  readonly identity: FileIdentity;
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
  return { identity, close, [Symbol.dispose]: close };
}

const CHECK_FOLDER = "check that its folder exists, that its disk is mounted, and that you may write to it";

function openLock(path: string) {
  const file = `${path}-lock`;
  let database: Database | undefined;
  try {
    const identity = statRegularFile(file);
    // SQLite follows symbolic links, so it must not create the file.
    database = new Database(file, { create: false, readwrite: true });
    // A server keeps the lock while it runs; a migration releases it soon.
    database.run("PRAGMA busy_timeout = 1000");
    // The transaction never commits, so it needs no journal on disk.
    database.run("PRAGMA journal_mode = MEMORY");
    database.run("BEGIN EXCLUSIVE");
    return { identity, database };
  } catch (cause) {
    database?.close();
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
  statRegularFile(`${path}-lock`) !== undefined && isLockedFile(`${path}-lock`, 1000);

/** Returns whether another connection keeps a database locked for this long. */
export function isLockedFile(file: string, timeoutMs: number): boolean {
  using database = new Database(file, { create: false, readwrite: true });
  try {
    database.run(`PRAGMA busy_timeout = ${timeoutMs}`);
    database.query("SELECT count(*) FROM sqlite_schema").get();
    return false;
  } catch (error) {
    if (error instanceof SQLiteError && error.code === "SQLITE_BUSY") return true;
    throw error;
  }
}
