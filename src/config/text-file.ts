import { readFileSync, statSync } from "node:fs";
import { isAbsolute, resolve } from "node:path";
import { describeFsError, errorMessage, getErrno } from "../error-message.ts";
import { decodeUtf8 } from "../text.ts";

const POLL_INTERVAL_MS = 1000;

/** Reads a UTF-8 file, without a byte order mark. Throws an Error that says in plain words why that is not possible. */
export const readText = (path: string): string => decodeUtf8(readBytes(path));

/** Reads a file. Throws an Error that says in plain words why that is not possible. */
export function readBytes(path: string): Buffer {
  try {
    return readFileSync(path);
  } catch (cause) {
    const fullPath = getErrno(cause) === "ENOENT" && !isAbsolute(path) ? ` (${resolve(path)})` : "";
    throw new Error(`${describeFsError(cause)}${fullPath}`, { cause });
  }
}

/** Calls `check` repeatedly. */
export type Poll = (paths: readonly string[], check: () => void) => void;

/** Calls `check` every second while the process runs, unless one of the paths is a pipe, whose reads would never end. */
export const pollFiles: Poll = (paths, check) => {
  // A watcher could miss a change before it starts, and modification times can be equal.
  if (paths.every((path) => statSync(path).isFile())) setInterval(check, POLL_INTERVAL_MS).unref();
};

/**
 * Calls `check`, which reads the files, every second. While it fails, reports each new reason once. Returns a function that
 * returns whether the last check failed.
 */
export function watchFiles(
  paths: readonly string[],
  check: () => void | Promise<void>,
  onFailure: (reason: string) => void,
  poll = pollFiles,
): () => boolean {
  let reason: string | undefined;
  poll(paths, async () => {
    try {
      await check();
      reason = undefined;
    } catch (error) {
      const lastReason = reason;
      reason = errorMessage(error);
      if (reason !== lastReason) onFailure(reason);
    }
  });
  return () => reason !== undefined;
}
