import type { Database } from "bun:sqlite";
import { existsSync } from "node:fs";
import { errorMessage, getErrno } from "../../../error-message.ts";
import { PreconditionError } from "../../maintenance.ts";
import { describeDamage, isDamage } from "../damage.ts";
import { acquireLock, type Lock } from "../lock.ts";
import { describeLoss, readMarkFirst } from "../mark.ts";
import { assertHasSchema } from "../migrations.ts";
import { describeOpenError } from "../open-error.ts";
import { assertNotOnlyWal } from "../open-file.ts";
import { type OpenStore, openShared, openUnchanged } from "./open-store.ts";

/** SQLite cannot read anything in a file, because its start is damaged. */
export class UnreadableError extends Error {
  override readonly name = "UnreadableError";
}

/** Throws a PreconditionError if a store does not exist or has only a log. */
export function requireStore(path: string): void {
  requireDatabase(path);
  if (!existsSync(path)) throw new PreconditionError(`${path} does not exist: check the path of the store`);
}

const requireDatabase = (path: string): void => openOrRefuse(path, () => assertNotOnlyWal(path));

/** A store has lost changes. The message names the store and says what to do. */
class LossError extends Error {
  override readonly name = "LossError";
}

/**
 * Runs a function on an existing store, which a server may be using. Throws an Error for a store that is damaged or has
 * lost changes, because the result would look like a good one.
 */
export async function withSharedAccess<T>(path: string, use: (database: Database) => Promise<T>): Promise<T> {
  const checkMark = readMarkFirst(path);
  const requireChanges = (database: Database | undefined): void => {
    const { loss } = checkMark(database);
    if (loss !== undefined) throw new LossError(`${path}: ${describeLoss(path, loss)}`);
  };
  requireDatabase(path);
  if (!existsSync(path)) {
    requireChanges(undefined);
    throw new PreconditionError(`${path} does not exist: check the path of the store`);
  }
  const check = (database: Database): void => {
    requireChanges(database);
    assertHasSchema(database);
  };
  using store = openOrRefuse(path, () => openShared(path, check));
  try {
    return await use(store.database);
  } catch (cause) {
    throw isDamage(cause) ? new Error(`${path}: ${describeDamage(cause)}`, { cause }) : cause;
  }
}

/**
 * Runs a function on an existing store, which may be damaged and which a server may be using. Changes nothing: another
 * connection would move a damaged log to the database when it closes. Throws an UnreadableError if nothing can be read.
 */
export async function withUnchangedStore<T>(
  path: string,
  use: (database: Database) => T | Promise<T>,
): Promise<T> {
  requireStore(path);
  using store = openOrRefuse(path, () => openDamaged(path));
  return await use(store.database);
}

function openDamaged(path: string): OpenStore {
  try {
    return openUnchanged(path);
  } catch (error) {
    if (!isDamage(error) && getErrno(error) !== "SQLITE_NOTADB") throw error;
    throw new UnreadableError(
      `${errorMessage(error)}: nothing in it can be read, so restore a backup with todo restore`,
    );
  }
}

/** Runs a function while no server can use the store. */
export async function withExclusiveAccess<T>(path: string, act: () => Promise<T>): Promise<T> {
  const lock = locking(path);
  try {
    return await act();
  } finally {
    lock.close();
  }
}

/** Opens or inspects a file. Throws a PreconditionError for an unusable file; disk errors stay plain Errors. */
export function openOrRefuse<T>(path: string, open: () => T): T {
  try {
    return open();
  } catch (cause) {
    if (cause instanceof UnreadableError || cause instanceof LossError) throw cause;
    const message = `${path}: ${describeOpenError(path, cause)}`;
    const isOfDisk = /^SQLITE_(?:FULL|IOERR)/.test(String(getErrno(cause)));
    throw isOfDisk ? new Error(message, { cause }) : new PreconditionError(message, { cause });
  }
}

function locking(path: string): Lock {
  try {
    return acquireLock(path);
  } catch (cause) {
    throw new PreconditionError(errorMessage(cause), { cause });
  }
}

/** Yields to the event loop once, then throws the signal's reason if it was aborted. */
export async function yieldToEventLoop(signal: AbortSignal): Promise<void> {
  await new Promise(setImmediate);
  signal.throwIfAborted();
}
