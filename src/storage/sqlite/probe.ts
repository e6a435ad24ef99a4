import { accessSync, constants, existsSync, statSync } from "node:fs";
import { dirname } from "node:path";
import { describeFsError } from "../../error-message.ts";
import { assertOwnSchema, BUSY_TIMEOUT_MS, connectReadOnly } from "./connection.ts";
import { isLocked } from "./lock.ts";
import { assertSound } from "./maintenance/check.ts";
import { assertNotBehindMark } from "./mark.ts";
import { assertKnownFormat } from "./migrations.ts";
import { describeOpenError } from "./open-error.ts";
import { openFile } from "./open-file.ts";
import { storeRow } from "./store-row.ts";

export interface SqliteProbe {
  /** The wall-clock time of the last change in milliseconds; `undefined` if the store does not exist. */
  readonly lastChange: number | undefined;
  /** The epoch of the store; `undefined` if the store does not exist or is empty. */
  readonly epoch: string | undefined;
  /** Whether another process has locked the store. */
  readonly isLocked: boolean;
}

/**
 * Checks that a server can open a store and write it, or can create it, and changes nothing. Throws an Error with the
 * reason if it cannot. It does not throw because another process has the lock.
 */
export async function probeSqlite(path: string): Promise<SqliteProbe> {
  describeErrors(path, () => assertNotBehindMark(path));
  if (!existsSync(path)) {
    assertWritableFolder(dirname(path));
    return { lastChange: undefined, epoch: undefined, isLocked: false };
  }
  const epoch = describeErrors(path, () => openForWriting(path));
  await assertSound(path);
  const changes = [path, `${path}-wal`].map(
    (file) => statSync(file, { throwIfNoEntry: false })?.mtimeMs ?? 0,
  );
  return { lastChange: Math.max(...changes), epoch, isLocked: describeErrors(path, () => isLocked(path)) };
}

function describeErrors<T>(path: string, act: () => T): T {
  try {
    return act();
  } catch (cause) {
    throw new Error(`${path}: ${describeOpenError(path, cause)}`, { cause });
  }
}

/** Returns the epoch of a store if this process can write it. Throws if it cannot. */
function openForWriting(path: string): string | undefined {
  // While this connection is open, closing the other one does not move the log to the database.
  using _reader = connectReadOnly(path);
  using database = openFile(path, { create: false, readwrite: true, safeIntegers: true });
  database.run(`PRAGMA busy_timeout = ${BUSY_TIMEOUT_MS}`);
  assertOwnSchema(database);
  const isEmpty = assertKnownFormat(database) === 0;
  // A transaction that is rolled back needs the same rights and locks as a write.
  database.run("BEGIN IMMEDIATE");
  const epoch = isEmpty ? undefined : storeRow(database).epoch;
  database.run("ROLLBACK");
  return epoch;
}

function assertWritableFolder(folder: string): void {
  try {
    accessSync(folder, constants.W_OK | constants.X_OK);
  } catch (cause) {
    throw new Error(`${folder}: ${describeFsError(cause)}`, { cause });
  }
}
