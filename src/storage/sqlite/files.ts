/** The files of a store: the database, and the WAL, the shared memory, the lock and the mark beside it. */
import { randomBytes } from "node:crypto";
import {
  type BigIntStats,
  closeSync,
  existsSync,
  fchownSync,
  fstatSync,
  lstatSync,
  openSync,
  readFileSync,
  realpathSync,
  rmSync,
  type Stats,
  statfsSync,
  statSync,
} from "node:fs";
import { basename, dirname, join } from "node:path";
import { describeFsError } from "../../error-message.ts";
import { PreconditionError } from "../maintenance.ts";
import type { FileUsage } from "../store.ts";
import { openError } from "./errors.ts";
import { describeWaysOut, quoteArgument } from "./ways-out.ts";

/** The permissions of new files. Only the owner may read a store, because it contains the hashes of API keys. */
export const PRIVATE_MODE = 0o600;

/**
 * Returns the canonical path of a file, because SQLite names the files beside it after it. Throws a
 * PreconditionError for a path that is ambiguous or not a file, and a StoreUnavailableError if the disk fails.
 */
export function canonicalPath(path: string): string {
  try {
    return resolveFile(path);
  } catch (cause) {
    if (cause instanceof PreconditionError) throw cause;
    throw openError(`${path}: ${describeFsError(cause)}`, cause);
  }
}

function resolveFile(path: string): string {
  // Bun trims the path before it opens the file.
  if (path !== path.trim())
    throw new PreconditionError(`${JSON.stringify(path)} starts or ends with a blank: remove the blank`);
  const stat = statSync(path, { throwIfNoEntry: false });
  if (stat !== undefined) {
    if (!stat.isFile()) throw new PreconditionError(`${path} is not a file`);
    if (stat.nlink > 1) {
      throw new PreconditionError(
        `${path} has another name (a hard link), so two servers could open it: remove the other name`,
      );
    }
    const real = realpathSync(path);
    if (lstatSync(path).isSymbolicLink()) assertNothingBesideLink(path, real);
    if (isMountPoint(real)) {
      throw new PreconditionError(
        `${path} is mounted alone, without the WAL and the lock beside it: mount its folder instead`,
      );
    }
    return real;
  }
  if (lstatSync(path, { throwIfNoEntry: false }) !== undefined)
    throw new PreconditionError(`${path} is a symbolic link to a missing file`);
  const folder = dirname(path);
  return existsSync(folder) ? join(realpathSync(folder), basename(path)) : path;
}

/**
 * Throws if a store was moved without its WAL or its mark, and a link took its place. SQLite looks for both beside the file
 * that the link names, so the changes in the WAL would be lost.
 */
function assertNothingBesideLink(link: string, real: string): void {
  const left = ["-wal", "-mark"].filter((suffix) => sizeOrZero(link + suffix) > 0);
  if (left.length === 0) return;
  const files = left.map((suffix) => link + suffix).join(" and ");
  const moves = left.map((suffix) => `mv ${quoteArgument(link + suffix)} ${quoteArgument(real + suffix)}`);
  throw new PreconditionError(
    `${link} is a symbolic link to ${real}, but has ${files} beside it: if the store was moved without these files, run ${moves.join(" && ")}; otherwise, move these files away`,
  );
}

/** The mount points of Linux. Other systems have no such file. */
const MOUNTINFO = "/proc/self/mountinfo";

/** Returns whether a canonical path is a mount point. */
const isMountPoint = (path: string): boolean =>
  existsSync(MOUNTINFO) && parseMountPoints(readFileSync(MOUNTINFO, "utf8")).includes(path);

/** Returns the mount points in the text of `/proc/self/mountinfo`: the fifth field of each line, with octal escapes (proc(5)). */
export function parseMountPoints(mountinfo: string): string[] {
  return mountinfo
    .trimEnd()
    .split("\n")
    .map((line) =>
      (line.split(" ")[4] ?? "").replace(/\\([0-7]{3})/g, (_, code) =>
        String.fromCharCode(Number.parseInt(code, 8)),
      ),
    );
}

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

/** Returns the path of a new temporary copy of a store beside it. The next start removes one that a crash has left. */
export const temporaryCopy = (path: string): string => `${path}.copy-${randomBytes(8).toString("hex")}`;

/** Returns whether a file is a temporary copy of a store. */
export const isTemporaryCopy = (path: string, file: string): boolean =>
  file.startsWith(`${path}.copy-`) && /^[0-9a-f]{16}$/.test(file.slice(`${path}.copy-`.length));

/** Removes a database file and SQLite's files beside it, except the lock and the mark. */
export function removeDatabase(path: string): void {
  for (const suffix of ["", "-journal", "-wal", "-shm"]) rmSync(path + suffix, { force: true });
}

/** What identifies a file, whatever its path. */
export interface FileIdentity {
  readonly dev: bigint;
  /** A number would round inodes above 2^53. */
  readonly ino: bigint;
}

/** Returns whether a file is the expected one. */
export const isSame = (expected: FileIdentity, found: FileIdentity | undefined): boolean =>
  found?.ino === expected.ino && found.dev === expected.dev;

/**
 * Returns the state of a file beside a store; `undefined` if it is missing. Throws an Error that says what to do unless it
 * is a regular file. A symbolic link is never followed, because its target would be overwritten.
 */
export function statRegularFile(file: string): BigIntStats | undefined {
  const found = lstatSync(file, { throwIfNoEntry: false, bigint: true });
  if (found === undefined || found.isFile()) return found;
  throw new Error(`it is ${describeKind(found)}: move ${file} away`);
}

export function describeKind(found: Pick<Stats, "isDirectory" | "isSymbolicLink">): string {
  if (found.isDirectory()) return "a folder, not a file";
  return found.isSymbolicLink() ? "a symbolic link, not a file" : "not a regular file";
}

/** Throws a PreconditionError that names the ways out if a store has a WAL with changes, but no database. */
export function assertNotOnlyWal(path: string): void {
  if (!hasOnlyWal(path)) return;
  throw new PreconditionError(
    `it is ${existsSync(path) ? "empty" : "missing"}, but ${path}-wal has changes: ${describeWaysOut(path, ["move both files away"])}`,
  );
}

/**
 * Returns whether the database of a store is missing or empty, but its WAL is not. Uses `stat` only. Looks at the WAL first,
 * because another process may be creating the store: SQLite writes the database before its WAL.
 */
export const hasOnlyWal = (path: string): boolean => hasWal(path) && sizeOrZero(path) === 0;

/** Returns whether the latest writes of a store are still in the WAL beside it. */
export const hasWal = (path: string): boolean => sizeOrZero(`${path}-wal`) > 0;

const sizeOrZero = (file: string): number => statSync(file, { throwIfNoEntry: false })?.size ?? 0;

const UNKNOWN: FileUsage = {
  databaseBytes: Number.NaN,
  walBytes: Number.NaN,
  freeBytes: Number.NaN,
  totalBytes: Number.NaN,
};

/**
 * Returns the sizes of a store's files and of their file system, in bytes; NaN if the disk cannot be read. Takes a few
 * microseconds.
 */
export function fileUsage(path: string): FileUsage {
  try {
    const { bavail, blocks, bsize } = statfsSync(dirname(path));
    return {
      databaseBytes: sizeOrZero(path),
      walBytes: sizeOrZero(`${path}-wal`),
      freeBytes: bavail * bsize,
      totalBytes: blocks * bsize,
    };
  } catch {
    // Without this, a disk that is gone would make the whole scrape fail.
    return UNKNOWN;
  }
}
