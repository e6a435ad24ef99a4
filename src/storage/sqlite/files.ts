/** The files of a store: the database, and beside it the WAL, its index, the lock and the mark. */
import {
  accessSync,
  closeSync,
  constants,
  existsSync,
  fchownSync,
  fstatSync,
  lstatSync,
  openSync,
  readFileSync,
  realpathSync,
  rmSync,
  statfsSync,
  statSync,
} from "node:fs";
import { basename, dirname, join } from "node:path";
import { describeFsError, getErrno } from "../../error-message.ts";
import { PRIVATE_MODE } from "../atomic-file.ts";
import { asStoreError } from "../failure.ts";
import { PreconditionError } from "../maintenance.ts";
import { type FileUsage, StoreUnavailableError } from "../store.ts";
import { quoteArgument } from "./rescue.ts";

/** A WAL without a long reader is shorter and is used again. SQLite shortens a longer one when it starts it again. */
export const WAL_SIZE_LIMIT = 16 * 1024 * 1024;

/** SQLite opens no longer path, and the path of the lock has five bytes more. */
const MAX_PATH_BYTES = 499;

/**
 * Returns the canonical path of a file, because SQLite names the files beside it after it. Throws a PreconditionError for a
 * path that is ambiguous or not a file, and a StoreUnavailableError if the disk fails.
 */
export function canonicalPath(path: string): string {
  try {
    const real = resolveFile(path);
    const bytes = Buffer.byteLength(real);
    if (bytes <= MAX_PATH_BYTES) return real;
    throw new PreconditionError(
      `${real} is too long: SQLite accepts paths of ${MAX_PATH_BYTES} bytes, and this one has ${bytes}`,
    );
  } catch (cause) {
    if (cause instanceof PreconditionError) throw cause;
    throw asStoreError(`${path}: ${describeFsError(cause)}`, cause);
  }
}

function resolveFile(path: string): string {
  // Bun trims the path before it opens the file.
  if (path !== path.trim())
    throw new PreconditionError(`${JSON.stringify(path)} starts or ends with a blank: remove the blank`);
  const stat = statSync(path, { throwIfNoEntry: false });
  if (stat === undefined) {
    if (lstatSync(path, { throwIfNoEntry: false }) !== undefined)
      throw new PreconditionError(`${path} is a symbolic link to a missing file`);
    return existsSync(dirname(path)) ? join(realpathSync(dirname(path)), basename(path)) : path;
  }
  if (!stat.isFile()) throw new PreconditionError(`${path} is not a file`);
  if (stat.nlink > 1)
    throw new PreconditionError(
      `${path} has another name (a hard link), so two servers could open it: remove the other name`,
    );
  const real = realpathSync(path);
  if (lstatSync(path).isSymbolicLink()) assertNothingBesideLink(path, real);
  if (isMountPoint(real))
    throw new PreconditionError(
      `${path} is mounted alone, without the WAL and the lock beside it: mount its folder instead`,
    );
  return real;
}

/** Throws if a store was moved without its WAL or its mark, and a link took its place: SQLite looks for both beside the target. */
function assertNothingBesideLink(link: string, real: string): void {
  const left = ["-wal", "-mark"].filter((suffix) => sizeOf(link + suffix) > 0);
  if (left.length === 0) return;
  const moves = left.map((suffix) => `mv ${quoteArgument(link + suffix)} ${quoteArgument(real + suffix)}`);
  throw new PreconditionError(
    `${link} is a symbolic link to ${real}, but has ${left.map((suffix) => link + suffix).join(" and ")} beside it: if the store was moved without these files, run ${moves.join(" && ")}; otherwise, move these files away`,
  );
}

/** The mount points of Linux. Other systems have no such file. */
const MOUNTINFO = "/proc/self/mountinfo";

const isMountPoint = (path: string): boolean =>
  existsSync(MOUNTINFO) && parseMountPoints(readFileSync(MOUNTINFO, "utf8")).includes(path);

/** Returns the mount points in the text of `/proc/self/mountinfo`: the fifth field of each line, with octal escapes (proc(5)). */
export const parseMountPoints = (mountinfo: string): string[] =>
  mountinfo
    .trimEnd()
    .split("\n")
    .map((line) =>
      (line.split(" ")[4] ?? "").replace(/\\([0-7]{3})/g, (_, code) =>
        String.fromCharCode(Number.parseInt(code, 8)),
      ),
    );

/** Returns the size of a file; 0 if it is missing. */
export const sizeOf = (file: string): number => statSync(file, { throwIfNoEntry: false })?.size ?? 0;

/** Returns whether the latest writes of a store may still be in the WAL beside it. */
export const hasWal = (path: string): boolean => sizeOf(`${path}-wal`) > 0;

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
        case "ENOENT":
          return "check that its folder exists, and that its disk is mounted";
        case "EACCES":
        case "EPERM":
          return `you have no permission to write ${one}: change its permissions, or use the account of the server`;
      }
    }
  }
  return undefined;
}

/** Throws unless this process can write a store. SQLite would open it to read only, and give the files beside it the mode of the file. */
export function assertWritable(path: string): void {
  const problem = whyNotWritable(path);
  if (problem !== undefined) throw new StoreUnavailableError(`${path}: ${problem}`);
}

/** Creates an empty file unless one exists. SQLite gives the mode of the database to the files beside it. */
export function createPrivate(path: string): void {
  try {
    if (process.getuid?.() === 0) createForOwner(path);
  } catch {
    // Otherwise it belongs to root.
  }
  try {
    closeSync(openSync(path, "wx", PRIVATE_MODE));
  } catch (error) {
    if (getErrno(error) !== "EEXIST") throw error;
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
    fchownSync(file, uid, gid);
    closeSync(file);
  } finally {
    closeSync(folder);
  }
}

/** Removes a database and SQLite's files beside it. */
export function removeDatabase(path: string): void {
  for (const suffix of ["", "-journal", "-wal", "-shm"]) rmSync(path + suffix, { force: true });
}

/** Returns the sizes of a store's files and of their file system, in bytes; NaN if the disk cannot be read. */
export function fileUsage(path: string): FileUsage {
  try {
    const { bavail, blocks, bsize } = statfsSync(dirname(path));
    const [databaseBytes, walBytes] = [sizeOf(path), sizeOf(`${path}-wal`)];
    return { databaseBytes, walBytes, freeBytes: bavail * bsize, totalBytes: blocks * bsize };
  } catch {
    // A disk that is gone must not make the whole scrape fail.
    return { databaseBytes: Number.NaN, walBytes: Number.NaN, freeBytes: Number.NaN, totalBytes: Number.NaN };
  }
}
