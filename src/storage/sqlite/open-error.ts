import { accessSync, constants } from "node:fs";
import { dirname } from "node:path";
import { errorMessage, getErrno } from "../../error-message.ts";
import { StoreUnavailableError } from "../store.ts";
import { describeDamage, isDamage } from "./damage.ts";

/** Errors of the system or of other processes: a later attempt may succeed. */
const TEMPORARY_SQLITE_CODES = /^SQLITE_(?:BUSY|CANTOPEN|FULL|IOERR|LOCKED|NOMEM|PERM|PROTOCOL|READONLY)/;
const TEMPORARY_CODES = new Set<unknown>([
  "EACCES",
  "EBUSY",
  "EDQUOT",
  "EIO",
  "EMFILE",
  "ENFILE",
  "ENOENT",
  "ENOMEM",
  "ENOSPC",
  "EPERM",
  "EROFS",
  "ESTALE",
]);

/** Returns the error of a store that cannot be opened: a StoreUnavailableError if the same call may succeed later. */
export function openError(message: string, cause: unknown): Error {
  return isTemporary(cause) ? new StoreUnavailableError(message, { cause }) : new Error(message, { cause });
}

function isTemporary(error: unknown): boolean {
  const errno = getErrno(error);
  return (
    error instanceof StoreUnavailableError ||
    TEMPORARY_CODES.has(errno) ||
    TEMPORARY_SQLITE_CODES.test(String(errno))
  );
}

/** Returns why this process cannot write a store, and what to do; `undefined` if it can write the file and its folder. */
export function whyNotWritable(path: string): string | undefined {
  for (const one of [dirname(path), path]) {
    try {
      accessSync(one, constants.W_OK);
    } catch (error) {
      switch (getErrno(error)) {
        case "EROFS":
          return "the file system is read-only: copy the store to a writable one with todo backup";
        case "EACCES":
        case "EPERM":
          return `you have no permission to write ${one}: change its permissions, or use the account of the server`;
      }
    }
  }
  return undefined;
}

/** Returns why a store cannot be opened, and what to do where SQLite's message does not help. */
export function describeOpenError(path: string, error: unknown): string {
  if (isDamage(error)) return describeDamage(error);
  if (getErrno(error) === "SQLITE_NOTADB") {
    return `${errorMessage(error)}: name another file; if it was a store, restore a backup with todo restore`;
  }
  return describeAccessError(path, error);
}

/** Returns why a file beside a store, or the store itself, cannot be used, or SQLite's message for other errors. */
export function describeAccessError(path: string, error: unknown): string {
  const isAccess = /^(?:SQLITE_(?:CANTOPEN|READONLY)|EACCES)/.test(String(getErrno(error)));
  return (isAccess ? whyNotWritable(path) : undefined) ?? errorMessage(error);
}
