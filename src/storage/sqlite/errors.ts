import { SQLiteError } from "bun:sqlite";
import { accessSync, constants, existsSync, readdirSync } from "node:fs";
import { basename, dirname, join } from "node:path";
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

/** SQLite repeats the text of a damaged schema, which has line breaks. */
export const inOneLine = (message: string): string => message.replaceAll(/\s+/g, " ");

/**
 * Returns how to get a store back, in the order of harm.
 * @param last the ways that lose data
 * @param better ways that lose less than a backup
 */
export function describeWaysOut(
  path: string,
  last: readonly string[] = [],
  better: readonly string[] = [],
): string {
  const rescues = findRescueFiles(path).slice(-1);
  const ways = [
    "put the right files back",
    ...rescues.map(
      (file) => `run ${restoreCommand(file, path)}, which has what a server held at ${rescueTime(file)}`,
    ),
    ...better,
    "restore a backup with todo restore",
    ...last,
  ];
  return `${ways.slice(0, -1).join(", ")}, or ${ways.at(-1)}`;
}

/** Returns the files that servers wrote beside a store when its files were wrong, from the oldest to the newest. */
export const findRescueFiles = (path: string): string[] =>
  readFolder(dirname(path))
    .filter((name) => name.startsWith(`${basename(path)}.rescue-`) && name.endsWith(".ndjson"))
    .sort()
    .map((name) => join(dirname(path), name));

/** Returns when a rescue file was written. Its name says it. */
export const rescueTime = (file: string): string =>
  file.replace(/^.*\.rescue-(\d{4})(\d\d)(\d\d)T(\d\d)(\d\d)\d*Z\.ndjson$/s, "$1-$2-$3 $4:$5 UTC");

export const restoreCommand = (file: string, path: string): string =>
  `todo restore ${quoteArgument(file)} --store ${quoteArgument(`sqlite:${path}`)}`;

/** Quotes an argument of a command for a shell if it needs that. */
export const quoteArgument = (text: string): string =>
  /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;

function readFolder(folder: string): readonly string[] {
  try {
    return readdirSync(folder);
  } catch {
    // The folder is gone or may not be read. The error to describe says so.
    return [];
  }
}
