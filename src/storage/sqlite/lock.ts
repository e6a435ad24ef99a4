/** The lock of a store. Bun has no `flock`, so SQLite's lock on an empty database of its own stands for it. */
import { Database } from "bun:sqlite";
import { existsSync, lstatSync, rmSync } from "node:fs";
import { getErrno } from "../../error-message.ts";
import { PreconditionError } from "../maintenance.ts";
import { StoreUnavailableError } from "../store.ts";
import { openError } from "./database.ts";
import { assertWritable, createPrivate } from "./files.ts";
import { quoteArgument } from "./rescue.ts";

/** A server that stops, and a command that ends, release the lock soon. */
const WAIT_MS = 1000;

/**
 * Locks a store until the process ends, even after a crash. Throws a StoreUnavailableError if another process has locked it. The
 * file stays empty, so that no power cut can damage it.
 */
export function acquireLock(path: string): Disposable {
  const file = `${path}-lock`;
  assertWritable(path);
  try {
    createPrivate(file);
  } catch (cause) {
    throw openError(file, cause);
  }
  // SQLite follows symbolic links.
  if (lstatSync(file, { throwIfNoEntry: false })?.isFile() === false)
    throw new PreconditionError(`${file} is not a regular file: move it away`);
  const steps = [`PRAGMA busy_timeout = ${WAIT_MS}`, "PRAGMA journal_mode = MEMORY", "BEGIN EXCLUSIVE"];
  const database = runOn(file, ...steps);
  const dispose = (): void => {
    // A command that failed to create a store leaves no lock.
    if (!existsSync(path)) rmSync(file, { force: true });
    database.close();
  };
  return { [Symbol.dispose]: dispose };
}

/** Returns whether another process has locked a store. Creates no file. */
export function isLocked(path: string): boolean {
  const file = `${path}-lock`;
  try {
    if (existsSync(file)) runOn(file, "SELECT count(*) FROM sqlite_schema").close();
    return false;
  } catch (error) {
    if (error instanceof InUseError) return true;
    throw error;
  }
}

class InUseError extends StoreUnavailableError {}

/** Opens a lock and runs statements. Throws an InUseError if another process has locked it. */
function runOn(file: string, ...statements: readonly string[]): Database {
  let database: Database | undefined;
  try {
    database = new Database(file, { create: false, readwrite: true });
    for (const statement of statements) database.run(statement);
    return database;
  } catch (cause) {
    database?.close();
    switch (getErrno(cause)) {
      case "SQLITE_BUSY":
        throw new InUseError(`${file.slice(0, -"-lock".length)} is in use by another server: stop it first`, {
          cause,
        });
      case "SQLITE_NOTADB":
        throw new PreconditionError(
          `${file} has the contents of another program: remove ${quoteArgument(file)} to go on`,
          { cause },
        );
      default:
        throw openError(file, cause);
    }
  }
}
