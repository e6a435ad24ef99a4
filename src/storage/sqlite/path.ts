import { existsSync, lstatSync, realpathSync, statSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { Refusal } from "../archive.ts";

/**
 * The one path of a file, by whichever name it is reached: a lock and a log lie beside it. Throws a Refusal for what
 * has no such path, or would lose what lies beside it.
 */
export function realFile(path: string): string {
  // Bun opens the file without them.
  if (path !== path.trim()) throw new Refusal(`${JSON.stringify(path)} has blanks around it: leave them out`);
  const stat = statSync(path, { throwIfNoEntry: false });
  if (stat !== undefined) {
    if (!stat.isFile()) throw new Refusal(`${path} is not a file`);
    if (stat.nlink > 1) {
      throw new Refusal(
        `${path} has another name too (a hard link): servers on the two would not see each other`,
      );
    }
    return realpathSync(path);
  }
  if (lstatSync(path, { throwIfNoEntry: false }) !== undefined)
    throw new Refusal(`${path} is a link to nothing`);
  if ((statSync(`${path}-wal`, { throwIfNoEntry: false })?.size ?? 0) > 0) {
    throw new Refusal(`${path} is gone but its log is not: put the file back, or move ${path}-wal away`);
  }
  const folder = dirname(path);
  return existsSync(folder) ? join(realpathSync(folder), basename(path)) : path;
}
