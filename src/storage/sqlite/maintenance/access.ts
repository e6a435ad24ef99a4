import type { Database } from "bun:sqlite";
import { existsSync } from "node:fs";
import { errorMessage, getErrno } from "../../../error-message.ts";
import { type MigrationSummary, PreconditionError } from "../../maintenance.ts";
import { describeDamage, describeLoss, describeOpenError, inOneLine } from "../diagnosis.ts";
import { isDamage } from "../errors.ts";
import { assertNotOnlyWal } from "../files.ts";
import { acquireLock, type Lock } from "../lock.ts";
import { assertNotBehindMark, checkMark } from "../mark.ts";
import { assertKnownFormat } from "../migrations.ts";
import { openDatabase, openExisting } from "../open.ts";
import { describeWaysOut } from "../ways-out.ts";

/** SQLite cannot read anything in a file, because its start is damaged. */
export class UnreadableError extends Error {
  override readonly name = "UnreadableError";
}

/** Throws a PreconditionError if a store does not exist or has only a WAL. */
function assertExists(path: string): void {
  openOrRefuse(path, () => assertNotOnlyWal(path));
  if (!existsSync(path)) throw new PreconditionError(`${path} does not exist: check the path of the store`);
}

/**
 * Runs a function on an existing store, which a server may be using. Throws an Error for a store that is damaged or has
 * lost changes, because the result would look like a good one.
 */
export async function withSharedAccess<T>(path: string, use: (database: Database) => Promise<T>): Promise<T> {
  const { loss } = openOrRefuse(path, () => checkMark(path));
  if (loss !== undefined) throw new Error(`${path}: ${describeLoss(path, loss)}`);
  assertExists(path);
  using database = openOrRefuse(path, () => openExisting(path));
  try {
    return await use(database);
  } catch (cause) {
    throw isDamage(cause) ? new Error(`${path}: ${describeDamage(path, cause)}`, { cause }) : cause;
  }
}

/**
 * Runs a function on an existing store, which may be damaged and which a server may be using. Changes nothing: another
 * connection would move a damaged WAL to the database when it closes. Throws an UnreadableError if nothing can be read.
 */
export async function withUnchangedStore<T>(
  path: string,
  use: (database: Database) => T | Promise<T>,
): Promise<T> {
  assertExists(path);
  using database = openOrRefuse(path, () => openDamaged(path));
  return await use(database);
}

function openDamaged(path: string): Database {
  try {
    return openDatabase(path, "readOnly");
  } catch (error) {
    if (!isDamage(error) && getErrno(error) !== "SQLITE_NOTADB") throw error;
    throw new UnreadableError(
      `${inOneLine(errorMessage(error))}: nothing in it can be read, so ${describeWaysOut(path)}`,
    );
  }
}

/** Implements `StoreAdmin.migrate`. */
export async function migrateFile(path: string): Promise<MigrationSummary> {
  assertExists(path);
  return openOrRefuse(path, () => {
    assertNotBehindMark(path);
    return {
      from: readFormat(openDatabase(path, "readOnly")),
      to: readFormat(openExisting(path)),
    };
  });
}

function readFormat(database: Database): number {
  using _ = database;
  return assertKnownFormat(database);
}

/** Opens or inspects a file. Throws a PreconditionError for an unusable file; disk errors stay plain Errors. */
export function openOrRefuse<T>(path: string, open: () => T): T {
  try {
    return open();
  } catch (cause) {
    if (cause instanceof UnreadableError) throw cause;
    const message = `${path}: ${describeOpenError(path, cause)}`;
    const isOfDisk = /^(?:SQLITE_(?:FULL|IOERR)|EDQUOT$|EIO$|ENOSPC$)/.test(String(getErrno(cause)));
    throw isOfDisk ? new Error(message, { cause }) : new PreconditionError(message, { cause });
  }
}

/**
 * Locks a store, so that no server can use it, and commands that change API keys wait. Throws a PreconditionError if another
 * process has locked it.
 */
export function lockOrRefuse(path: string): Lock {
  try {
    const lock = acquireLock(path);
    lock.serve();
    return lock;
  } catch (cause) {
    throw new PreconditionError(errorMessage(cause), { cause });
  }
}
