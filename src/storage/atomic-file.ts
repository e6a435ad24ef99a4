import { closeSync, existsSync, fsyncSync, linkSync, openSync, renameSync, rmSync } from "node:fs";
import { dirname } from "node:path";
import { describeFsError, getErrno } from "../error-message.ts";
import { PreconditionError } from "./maintenance.ts";

/** The mode of files that only their owner may read, such as a store, which has the hashes of API keys. */
export const PRIVATE_MODE = 0o600;

/**
 * Creates a file atomically. Resolves when the file is on disk. Throws a PreconditionError if the file exists.
 * @param mode permissions of the new file, before the umask
 * @param write fills the empty file at the path that it receives
 */
export async function createFileAtomic<T>(
  path: string,
  mode: number,
  write: (part: string) => Promise<T>,
): Promise<T> {
  if (path === "") throw new PreconditionError("the file has no name");
  if (existsSync(path)) throw alreadyExists(path);
  return writeFileAtomic(path, mode, write, giveName);
}

/** Replaces or creates a file atomically. The parameters are those of `createFileAtomic`. */
export function replaceFileAtomic<T>(
  path: string,
  mode: number,
  write: (part: string) => Promise<T>,
): Promise<T> {
  return writeFileAtomic(path, mode, write, renameSync);
}

/** Writes `path` + ".part", which also excludes other writers. Then `commit` moves it into place. */
async function writeFileAtomic<T>(
  path: string,
  mode: number,
  write: (part: string) => Promise<T>,
  commit: (part: string, path: string) => void,
): Promise<T> {
  const part = `${path}.part`;
  createEmpty(part, mode);
  let written: T;
  try {
    written = await write(part);
    fsyncFile(part);
    commit(part, path);
  } catch (error) {
    rmSync(part, { force: true });
    throw error;
  }
  fsyncFolder(dirname(path));
  return written;
}

/** Waits until the entries of a folder are on disk, if its file system can do that. */
export function fsyncFolder(path: string): void {
  try {
    fsyncFile(path);
  } catch (error) {
    // Some network and FUSE file systems sync files only.
    if (getErrno(error) !== "EINVAL" && getErrno(error) !== "ENOTSUP") throw error;
  }
}

/** Waits until the contents of a file are on disk. */
export function fsyncFile(path: string): void {
  const descriptor = openSync(path, "r");
  try {
    fsyncSync(descriptor);
  } finally {
    closeSync(descriptor);
  }
}

function createEmpty(part: string, mode: number): void {
  try {
    closeSync(openSync(part, "wx", mode));
  } catch (error) {
    if (getErrno(error) === "EEXIST") {
      throw new PreconditionError(
        `another command is writing ${part}: if no other command is running, remove ${part}`,
      );
    }
    throw new PreconditionError(`${part} cannot be created: ${describeFsError(error)}`, { cause: error });
  }
}

/** Gives a file another name, which no other file has. */
function giveName(part: string, path: string): void {
  try {
    // Unlike rename, link fails if another process has created the file in the meantime.
    linkSync(part, path);
  } catch (error) {
    if (getErrno(error) === "EEXIST") throw alreadyExists(path);
    // A file system without hard links, such as exFAT.
    renameSync(part, path);
    return;
  }
  rmSync(part);
}

const alreadyExists = (path: string): PreconditionError =>
  new PreconditionError(`${path} already exists: name another file`);
