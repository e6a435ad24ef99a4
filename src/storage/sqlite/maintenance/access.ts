import type { Database } from "bun:sqlite";
import { existsSync } from "node:fs";
import { errnoOf, errorMessage } from "../../../error-message.ts";
import { PreconditionError } from "../../maintenance.ts";
import { acquireLock } from "../lock.ts";
import { describeOpenError } from "../open-error.ts";
import { openShared } from "./shared.ts";

/** Runs a function on an existing store, which a server may be using. */
export async function withSharedAccess<T>(path: string, use: (database: Database) => Promise<T>): Promise<T> {
  if (!existsSync(path)) throw new PreconditionError(`${path} does not exist: check the path of the store`);
  using store = openOrRefuse(path, () => openShared(path));
  return await use(store.database);
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
    const message = `${path}: ${describeOpenError(path, cause)}`;
    const isOfDisk = /^SQLITE_(?:FULL|IOERR)/.test(String(errnoOf(cause)));
    throw isOfDisk ? new Error(message, { cause }) : new PreconditionError(message, { cause });
  }
}

function locking(path: string): Database {
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
