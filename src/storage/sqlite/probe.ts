import { accessSync, constants, existsSync, statSync } from "node:fs";
import { dirname } from "node:path";
import { describeFsError } from "../../error-message.ts";
import { assertOwnSchema } from "./connection.ts";
import { assertNotBehindMark } from "./mark.ts";
import { describeOpenError } from "./open-error.ts";
import { hasOnlyLog, openFile } from "./open-file.ts";

/** Milliseconds to wait for the writes of a running server. */
const BUSY_TIMEOUT_MS = 5000;

/**
 * Checks that a store can be written, or that its folder allows to create it, and changes nothing. Returns the wall-clock
 * time of its last change in milliseconds, or `undefined` if it does not exist. Throws an Error with the reason.
 */
export function probeSqlite(path: string): number | undefined {
  if (!existsSync(path) && !hasOnlyLog(path)) {
    assertWritableFolder(dirname(path));
    return undefined;
  }
  try {
    assertNotBehindMark(path);
    using database = openFile(path, { create: false, readwrite: true, safeIntegers: true });
    database.run(`PRAGMA busy_timeout = ${BUSY_TIMEOUT_MS}`);
    assertOwnSchema(database);
    // A transaction that is rolled back needs the same rights and locks as a write.
    database.run("BEGIN IMMEDIATE");
    database.run("ROLLBACK");
  } catch (cause) {
    throw new Error(`${path}: ${describeOpenError(path, cause)}`, { cause });
  }
  const changes = [path, `${path}-wal`].map(
    (file) => statSync(file, { throwIfNoEntry: false })?.mtimeMs ?? 0,
  );
  return Math.max(...changes);
}

function assertWritableFolder(folder: string): void {
  try {
    accessSync(folder, constants.W_OK | constants.X_OK);
  } catch (cause) {
    throw new Error(`${folder}: ${describeFsError(cause)}`, { cause });
  }
}
