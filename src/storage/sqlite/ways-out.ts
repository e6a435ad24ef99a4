/** What to do with a store that cannot be used. */
import { readdirSync } from "node:fs";
import { basename, dirname, join } from "node:path";

/**
 * Returns how to get a store back, in the order of harm.
 * @param last the ways that lose data
 * @param better ways that lose less than a backup
 */
export function describeWaysOut(
  path: string,
  last: readonly string[] = [],
  better: readonly string[] = [],
): string {
  const rescues = findRescueFiles(path).slice(-1);
  const ways = [
    "put the right files back",
    ...rescues.map(
      (file) => `run ${restoreCommand(file, path)}, which has what a server held at ${rescueTime(file)}`,
    ),
    ...better,
    "restore a backup with todo restore",
    ...last,
  ];
  return `${ways.slice(0, -1).join(", ")}, or ${ways.at(-1)}`;
}

/** Returns the files that servers wrote beside a store when its files were wrong, from the oldest to the newest. */
export const findRescueFiles = (path: string): string[] =>
  readFolder(dirname(path))
    .filter((name) => name.startsWith(`${basename(path)}.rescue-`) && name.endsWith(".ndjson"))
    .sort()
    .map((name) => join(dirname(path), name));

/** Returns when a rescue file was written. Its name says it. */
export const rescueTime = (file: string): string =>
  file.replace(/^.*\.rescue-(\d{4})(\d\d)(\d\d)T(\d\d)(\d\d)\d*Z\.ndjson$/s, "$1-$2-$3 $4:$5 UTC");

export const restoreCommand = (file: string, path: string): string =>
  `todo restore ${quoteArgument(file)} --store ${quoteArgument(`sqlite:${path}`)}`;

/** Quotes an argument of a command for a shell if it needs that. */
export const quoteArgument = (text: string): string =>
  /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;

function readFolder(folder: string): readonly string[] {
  try {
    return readdirSync(folder);
  } catch {
    // The folder is gone or may not be read. The error to describe says so.
    return [];
  }
}
