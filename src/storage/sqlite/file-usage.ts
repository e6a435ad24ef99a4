import { statfsSync, statSync } from "node:fs";
import { dirname } from "node:path";

const UNKNOWN = {
  databaseBytes: Number.NaN,
  walBytes: Number.NaN,
  freeBytes: Number.NaN,
  totalBytes: Number.NaN,
};

/**
 * Returns the sizes of a store's files and of their file system, in bytes; NaN if the disk cannot be read. Takes a few
 * microseconds.
 */
export function fileUsage(path: string) {
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
