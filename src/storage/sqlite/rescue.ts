/** Rescue files, which have what a server held when the files of its store were wrong, and other ways out. */
import { readdirSync, renameSync } from "node:fs";
import { open } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { errorMessage } from "../../error-message.ts";
import { createFileAtomic, PRIVATE_MODE } from "../atomic-file.ts";
import { type ExportContents, writeExport } from "../ndjson.ts";

/**
 * Writes an export to a new file beside a store, or to another folder. Returns its path. Throws an Error that has the reason for
 * each folder.
 */
export async function writeRescueFile(
  path: string,
  otherFolder: string | undefined,
  contents: () => ExportContents,
): Promise<string> {
  const time = new Date().toISOString().replaceAll(/[-:.]/g, "");
  const reasons: string[] = [];
  for (const folder of [dirname(path), otherFolder]) {
    if (folder === undefined) continue;
    const file = join(folder, `${basename(path)}.rescue-${time}.ndjson`);
    try {
      await createFileAtomic(file, PRIVATE_MODE, async (part) => {
        await using handle = await open(part, "a");
        const { signal } = new AbortController();
        return await writeExport(contents(), (text) => handle.appendFile(text), { signal });
      });
      return file;
    } catch (error) {
      reasons.push(errorMessage(error).replaceAll(time, "TIME"));
    }
  }
  throw new Error(reasons.join("; "));
}

/** Returns the rescue files beside a store, from the oldest to the newest. */
export const findRescueFiles = (path: string): string[] =>
  namesIn(dirname(path))
    .filter((name) => name.startsWith(`${basename(path)}.rescue-`) && name.endsWith(".ndjson"))
    .sort()
    .map((name) => join(dirname(path), name));

function namesIn(folder: string): readonly string[] {
  try {
    return readdirSync(folder);
  } catch {
    // The folder is gone or may not be read. The error to describe says so.
    return [];
  }
}

/**
 * Renames a rescue file that is not needed, because later messages would name it as the best copy. Returns its new name, or the
 * old one if it cannot be renamed.
 */
export function retireRescueFile(file: string): string {
  try {
    renameSync(file, `${file}.old`);
    return `${file}.old`;
  } catch {
    // The caller names the file in a warning.
    return file;
  }
}

/** Returns when a rescue file was written. Its name says it. */
export const rescueTime = (file: string): string =>
  file.replace(/^.*\.rescue-(\d{4})(\d\d)(\d\d)T(\d\d)(\d\d)\d*Z\.ndjson$/s, "$1-$2-$3 $4:$5 UTC");

export const restoreCommand = (file: string, path: string): string =>
  `todo restore ${quoteArgument(file)} --store ${quoteArgument(`sqlite:${path}`)}`;

/** Quotes an argument of a command for a shell if it needs that. */
export const quoteArgument = (text: string): string =>
  /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;

/**
 * Returns how to get a store back, in the order of harm.
 * @param last the ways that lose data
 */
export function waysOut(path: string, ...last: readonly string[]): string {
  const rescues = findRescueFiles(path).slice(-1);
  const ways = [
    "put the right files back",
    ...rescues.map(
      (file) => `run ${restoreCommand(file, path)}, which has what a server held at ${rescueTime(file)}`,
    ),
    "restore a backup with todo restore",
    ...last,
  ];
  return `${ways.slice(0, -1).join(", ")}, or ${ways.at(-1)}`;
}
