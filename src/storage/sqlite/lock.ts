import { Database, SQLiteError } from "bun:sqlite";
import { describeAccessError, whyNotWritable } from "./open-error.ts";
import { createPrivate } from "./open-file.ts";

/** Locks a store. The operating system releases the lock when the process ends, even after a crash. */
export function acquireLock(path: string): Database {
  let lock: Database | undefined;
  try {
    createPrivate(`${path}-lock`);
    lock = new Database(`${path}-lock`, { create: true });
    // A server keeps the lock while it runs; a migration releases it soon.
    lock.run("PRAGMA busy_timeout = 1000");
    lock.run("BEGIN EXCLUSIVE");
    return lock;
  } catch (cause) {
    lock?.close();
    if (lock === undefined)
      throw new Error(
        `${path}-lock cannot be opened: ${whyNotWritable(`${path}-lock`) ?? "check that its folder exists and that you may write to it"}`,
        { cause },
      );
    if (cause instanceof SQLiteError && cause.code === "SQLITE_BUSY") {
      throw new Error(`${path} is in use by another server: stop it first`, { cause });
    }
    throw new Error(`${path} cannot be locked: ${describeAccessError(path, cause)}`, { cause });
  }
}
