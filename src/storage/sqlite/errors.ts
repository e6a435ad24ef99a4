import { SQLiteError } from "bun:sqlite";
import { accessSync, constants, existsSync } from "node:fs";
import { dirname } from "node:path";
import { errorMessage, getErrno } from "../../error-message.ts";
import { StoreUnavailableError } from "../store.ts";

/** The file of a store is damaged. The message says what is wrong. */
export class DamageError extends Error {
  override readonly name = "DamageError";
  /** An error of another thread keeps its code only. */
  readonly code = "SQLITE_CORRUPT";
}

/** Reads a store. Throws a DamageError for values that this program never writes, because they fail in many ways. */
export function assertReadable<T>(read: () => T): T {
  try {
    return read();
  } catch (cause) {
    if (cause instanceof SQLiteError || cause instanceof DamageError) throw cause;
    // A damaged row has a value of another type than its column.
    const reason = cause instanceof TypeError ? "a value has another type" : errorMessage(cause);
    throw new DamageError(reason, { cause });
  }
}

/** Errors of the system or of other processes: a later attempt may succeed. */
const TEMPORARY_CODES =
  /^(?:SQLITE_(?:BUSY|CANTOPEN|FULL|IOERR|LOCKED|NOMEM|PERM|PROTOCOL|READONLY).*|EACCES|EBUSY|EDQUOT|EIO|EMFILE|ENFILE|ENOENT|ENOMEM|ENOSPC|EPERM|EROFS|ESTALE)$/;

/** Returns whether an error is one of the system or of another process. */
export const isTemporary = (error: unknown): boolean => TEMPORARY_CODES.test(String(getErrno(error)));

/** Returns whether an error means that the file of a store is damaged. The statements themselves are correct. */
export function isDamage(error: unknown): boolean {
  const code = String(getErrno(error));
  return (
    code.startsWith("SQLITE_") &&
    !TEMPORARY_CODES.test(code) &&
    !/^SQLITE_(?:AUTH|INTERRUPT|NOTADB)/.test(code)
  );
}

/** Returns the error of a store that cannot be opened: a StoreUnavailableError if the same call may succeed later. */
export function openError(message: string, cause: unknown): Error {
  return cause instanceof StoreUnavailableError || isTemporary(cause)
    ? new StoreUnavailableError(message, { cause })
    : new Error(message, { cause });
}

/** Returns why this process cannot write a store, and what to do; `undefined` if it can write the folder and the files. */
export function whyNotWritable(path: string): string | undefined {
  const files = ["", "-wal", "-shm", "-lock", "-mark"].map((suffix) => path + suffix);
  for (const one of [dirname(path), ...files.filter((file) => existsSync(file))]) {
    try {
      accessSync(one, constants.W_OK);
    } catch (error) {
      switch (getErrno(error)) {
        case "EROFS":
          return `the file system is read-only: copy ${path}, and ${path}-wal if it exists, to a writable folder`;
        case "EACCES":
        case "EPERM":
          return `you have no permission to write ${one}: change its permissions, or use the account of the server`;
      }
    }
  }
  return undefined;
}

/** Returns why a file beside a store, or the store itself, cannot be used, or SQLite's message for other errors. */
export function describeAccessError(path: string, error: unknown): string {
  const isAccess = /^(?:SQLITE_(?:CANTOPEN|READONLY)|EACCES)/.test(String(getErrno(error)));
  return (isAccess ? whyNotWritable(path) : undefined) ?? errorMessage(error);
}
