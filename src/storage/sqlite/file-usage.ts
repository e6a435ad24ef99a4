import { statfsSync, statSync } from "node:fs";
import { dirname } from "node:path";

/** Sizes of a store's files and of their file system, in bytes. Values are NaN if the disk cannot be read. */
export interface FileUsage {
  readonly databaseBytes: number;
  readonly walBytes: number;
  /** The free space that the current user may use. */
  readonly freeBytes: number;
  readonly totalBytes: number;
}

const UNKNOWN: FileUsage = {
  databaseBytes: Number.NaN,
  walBytes: Number.NaN,
  freeBytes: Number.NaN,
  totalBytes: Number.NaN,
};

/** Returns the sizes of the store at a path. Takes a few microseconds. */
export function fileUsage(path: string): FileUsage {
  const sizeOf = (file: string): number => statSync(file, { throwIfNoEntry: false })?.size ?? 0;
  try {
    const { bavail, blocks, bsize } = statfsSync(dirname(path));
    return {
      databaseBytes: sizeOf(path),
      walBytes: sizeOf(`${path}-wal`),
      freeBytes: bavail * bsize,
      totalBytes: blocks * bsize,
    };
  } catch {
    // Without this, a disk that is gone would make the whole scrape fail.
    return UNKNOWN;
  }
}
