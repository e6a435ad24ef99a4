import { Database, SQLiteError } from "bun:sqlite";
import { existsSync } from "node:fs";
import { describeAccessError, openError, whyNotWritable } from "./open-error.ts";
import { createPrivate } from "./open-file.ts";

/** Locks a store. The operating system releases the lock when the process ends, even after a crash. Throws as `openSqlite` does. */
export function acquireLock(path: string): Database {
  let lock: Database | undefined;
  try {
    createPrivate(`${path}-lock`);
    lock = new Database(`${path}-lock`);
    // A server keeps the lock while it runs; a migration releases it soon.
    lock.run("PRAGMA busy_timeout = 1000");
    lock.run("BEGIN EXCLUSIVE");
    return lock;
  } catch (cause) {
    lock?.close();
    if (lock === undefined)
      throw openError(
        `${path}-lock cannot be opened: ${whyNotWritable(`${path}-lock`) ?? "check that its folder exists, that its disk is mounted, and that you may write to it"}`,
        cause,
      );
    if (cause instanceof SQLiteError && cause.code === "SQLITE_BUSY") {
      throw openError(`${path} is in use by another server: stop it first`, cause);
    }
    throw openError(`${path} cannot be locked: ${describeAccessError(path, cause)}`, cause);
  }
}

/** Returns whether another process has locked a store. Creates no file. */
export function isLocked(path: string): boolean {
  if (!existsSync(`${path}-lock`)) return false;
  using lock = new Database(`${path}-lock`, { create: false, readwrite: true });
  try {
    lock.run("PRAGMA busy_timeout = 1000");
    lock.query("SELECT count(*) FROM sqlite_schema").get();
    return false;
  } catch (error) {
    if (error instanceof SQLiteError && error.code === "SQLITE_BUSY") return true;
    throw error;
  }
}
