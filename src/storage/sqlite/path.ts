import { existsSync, lstatSync, readFileSync, realpathSync, statSync } from "node:fs";
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
    const real = realpathSync(path);
    if (isMountPoint(real)) {
      throw new PreconditionError(
        `${path} is mounted alone, without the log and the lock beside it: mount its folder instead`,
      );
    }
    return real;
  }
  if (lstatSync(path, { throwIfNoEntry: false }) !== undefined)
    throw new PreconditionError(`${path} is a symbolic link to a missing file`);
  const folder = dirname(path);
  return existsSync(folder) ? join(realpathSync(folder), basename(path)) : path;
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
