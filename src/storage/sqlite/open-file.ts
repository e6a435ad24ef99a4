import { Database } from "bun:sqlite";
import { closeSync, fchownSync, fstatSync, lstatSync, openSync, type Stats, statSync } from "node:fs";
import { basename, dirname } from "node:path";
import { PreconditionError } from "../maintenance.ts";

/**
 * Opens the database of a store through SQLite. Throws a PreconditionError if the database is missing or empty, but its
 * log is not, because SQLite would delete the log.
 */
export function openFile(path: string, options: ConstructorParameters<typeof Database>[1]): Database {
  assertNotOnlyWal(path);
  if (typeof options === "object" && options.create === true) createPrivate(path);
  return new Database(path, options);
}

/** The permissions of new files. Only the owner may read a store, because it contains the hashes of API keys. */
export const PRIVATE_MODE = 0o600;

/** Creates an empty file unless one exists. SQLite gives the mode of the database to the files beside it. */
export function createPrivate(path: string): void {
  try {
    try {
      if (process.getuid?.() === 0) createForOwner(path);
    } finally {
      closeSync(openSync(path, "wx", PRIVATE_MODE));
    }
  } catch {
    // The file exists, or SQLite reports why it cannot be created.
  }
}

/** Creates a file that belongs to the owner of its folder, so that a server can open a store that root creates. */
function createForOwner(path: string): void {
  const folder = openSync(dirname(path), "r");
  try {
    const { uid, gid } = fstatSync(folder);
    if (uid === 0 || process.platform !== "linux") return;
    // The owner could replace the folder by a link to another one. The descriptor still names the same folder.
    const file = openSync(`/proc/self/fd/${folder}/${basename(path)}`, "wx", PRIVATE_MODE);
    try {
      fchownSync(file, uid, gid);
    } finally {
      closeSync(file);
    }
  } finally {
    closeSync(folder);
  }
}

/** What identifies a file, whatever its path. */
export interface FileIdentity {
  readonly dev: number;
  readonly ino: number;
}

/** Returns whether a file is the expected one. */
export const isSame = (expected: FileIdentity, found: FileIdentity | undefined): boolean =>
  found?.ino === expected.ino && found.dev === expected.dev;

/**
 * Returns the state of a file beside a store; `undefined` if it is missing. Throws an Error that says what to do unless it
 * is a regular file. A symbolic link is never followed, because its target would be overwritten.
 */
export function statRegularFile(file: string): Stats | undefined {
  const found = lstatSync(file, { throwIfNoEntry: false });
  if (found === undefined || found.isFile()) return found;
  throw new Error(`it is ${describeKind(found)}: move ${file} away`);
}

export function describeKind(found: Stats): string {
  if (found.isDirectory()) return "a folder, not a file";
  return found.isSymbolicLink() ? "a symbolic link, not a file" : "not a regular file";
}

/** Throws a PreconditionError that names the ways out if a store has a log with changes, but no database. */
export function assertNotOnlyWal(path: string): void {
  if (!hasOnlyWal(path)) return;
  const what = sizeOf(path) === undefined ? "missing" : "empty";
  throw new PreconditionError(
    `it is ${what}, but ${path}-wal has changes: put the right ${path} back, or restore a backup with todo restore, which moves the files aside, or move both files away`,
  );
}

/**
 * Returns whether the database of a store is missing or empty, but its log is not. Uses `stat` only. Looks at the log first,
 * because another process may be creating the store: SQLite writes the database before its log.
 */
export const hasOnlyWal = (path: string): boolean => hasWal(path) && (sizeOf(path) ?? 0) === 0;

/** Returns whether the latest writes of a store are still in the log beside it. */
export const hasWal = (path: string): boolean => (sizeOf(`${path}-wal`) ?? 0) > 0;

const sizeOf = (file: string): number | undefined => statSync(file, { throwIfNoEntry: false })?.size;
