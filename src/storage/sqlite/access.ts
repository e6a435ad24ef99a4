import type { Database } from "bun:sqlite";
import { existsSync } from "node:fs";
import { Refusal } from "../archive.ts";
import { codeOf } from "../whole-file.ts";
import { connectBeside, takeLock } from "./file.ts";

/** Uses a store that is there, beside a server that may be using it. */
export async function besideServer<T>(path: string, use: (database: Database) => Promise<T>): Promise<T> {
  if (!existsSync(path)) throw new Refusal(`${path}: there is no such store`);
  const database = opening(path, () => connectBeside(path));
  try {
    return await use(database);
  } finally {
    database.close();
  }
}

/** Does something while no server can use the store. */
export async function withoutServer<T>(path: string, act: () => Promise<T>): Promise<T> {
  const lock = locking(path);
  try {
    return await act();
  } finally {
    lock.close();
  }
}

/** Opens a file or looks into it; throws a Refusal when something is wrong with it, other than its disk. */
export function opening<T>(path: string, open: () => T): T {
  try {
    return open();
  } catch (cause) {
    const message = `${path}: ${cause instanceof Error ? cause.message : cause}`;
    const isOfDisk = /^SQLITE_(?:FULL|IOERR)/.test(String(codeOf(cause)));
    throw isOfDisk ? new Error(message, { cause }) : new Refusal(message, { cause });
  }
}

function locking(path: string): Database {
  try {
    return takeLock(path);
  } catch (cause) {
    throw new Refusal(`${cause instanceof Error ? cause.message : cause}`, { cause });
  }
}

/** A turn of the event loop, in which a signal is heard; throws its reason. */
export async function turn(signal: AbortSignal): Promise<void> {
  await new Promise(setImmediate);
  signal.throwIfAborted();
}
