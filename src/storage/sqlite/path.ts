import { existsSync, lstatSync, realpathSync, statSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { describeFsError } from "../../error-message.ts";
import { PreconditionError } from "../maintenance.ts";
import { openError } from "./open-error.ts";

/**
 * Returns the canonical path of a file, because SQLite's lock and log files are named after it. Throws a
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
    return realpathSync(path);
  }
  if (lstatSync(path, { throwIfNoEntry: false }) !== undefined)
    throw new PreconditionError(`${path} is a symbolic link to a missing file`);
  const folder = dirname(path);
  return existsSync(folder) ? join(realpathSync(folder), basename(path)) : path;
}
