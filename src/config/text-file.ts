import { readFileSync, statSync } from "node:fs";
import { isAbsolute, resolve } from "node:path";
import { describeFsError, getErrno } from "../error-message.ts";

const POLL_INTERVAL_MS = 1000;

/** Reads a UTF-8 file. Throws an Error that says in plain words why the file cannot be read. */
export function readText(path: string): string {
  try {
    return readFileSync(path, "utf8");
  } catch (cause) {
    const fullPath = getErrno(cause) === "ENOENT" && !isAbsolute(path) ? ` (${resolve(path)})` : "";
    throw new Error(`${describeFsError(cause)}${fullPath}`, { cause });
  }
}

/** Calls `check` every second while the process runs, unless one of the paths is a pipe, whose reads would never end. */
export function pollFiles(paths: readonly string[], check: () => void): void {
  // A watcher could miss a change before it starts, and modification times can be equal.
  if (paths.every((path) => statSync(path).isFile())) setInterval(check, POLL_INTERVAL_MS).unref();
}
