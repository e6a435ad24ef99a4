import { closeSync, existsSync, fsyncSync, linkSync, openSync, rmSync } from "node:fs";
import { dirname } from "node:path";
import { Refusal } from "./archive.ts";

/**
 * Makes a file whole or not at all, and on disk when this returns; never in the place of another.
 * @param mode its permissions
 * @param write fills the file at the path that it is given, which is empty
 */
export async function makeWholeFile<T>(
  path: string,
  mode: number,
  write: (part: string) => Promise<T>,
): Promise<T> {
  const part = `${path}.part`;
  if (path === "") throw new Refusal("the file has no name");
  if (existsSync(path)) throw isThere(path);
  makeEmpty(part, mode);
  let written: T;
  try {
    written = await write(part);
    syncToDisk(part);
    putInPlace(part, path);
  } finally {
    removeDatabase(part);
  }
  syncToDisk(dirname(path));
  return written;
}

/** Waits until a file, or what a folder lists, is on disk. */
export function syncToDisk(path: string): void {
  const descriptor = openSync(path, "r");
  try {
    fsyncSync(descriptor);
  } finally {
    closeSync(descriptor);
  }
}

/** Removes a file, and what SQLite may have left beside it. */
export function removeDatabase(path: string): void {
  for (const suffix of ["", "-journal", "-wal", "-shm"]) rmSync(path + suffix, { force: true });
}

/** Why a file cannot be used, in plain words. */
export function whyNot(error: unknown): string {
  switch (codeOf(error)) {
    case "ENOENT":
      return "there is no such file or folder";
    case "ENOTDIR":
      return "that is no folder, but a file";
    case "EISDIR":
      return "that is a folder, not a file";
    case "EACCES":
    case "EPERM":
      return "this user may not";
    case "EROFS":
      return "nothing can be written there";
    default:
      return error instanceof Error ? error.message : String(error);
  }
}

export function codeOf(error: unknown): unknown {
  return error instanceof Error && "code" in error ? error.code : undefined;
}

function makeEmpty(part: string, mode: number): void {
  try {
    closeSync(openSync(part, "wx", mode));
  } catch (error) {
    if (codeOf(error) === "EEXIST") {
      throw new Refusal(`${part} is being written; if by nobody, its writing was broken off: remove it`);
    }
    throw new Refusal(`${part} cannot be made: ${whyNot(error)}`, { cause: error });
  }
}

function putInPlace(part: string, path: string): void {
  try {
    // Unlike a rename, it fails where something has appeared meanwhile.
    linkSync(part, path);
  } catch (error) {
    throw codeOf(error) === "EEXIST" ? isThere(path) : error;
  }
}

const isThere = (path: string): Refusal =>
  new Refusal(`${path} is there already, and is left as it is: name another file`);
