import type { Command } from "commander";
import type { Copied } from "../storage/archive.ts";
import { formatPosition } from "../todo.ts";
import { addStoreOptions, withArchive } from "./archive.ts";
import type { Flags } from "./config.ts";

/** Adds `todo backup`. */
export function addBackupCommand(program: Command): void {
  const command = program
    .command("backup")
    .description("Copy the store, keys and all, into a new file; also while a server runs.")
    .argument("<file>");
  addStoreOptions(command).action((file: string, flags: Flags) =>
    withArchive(flags, async (archive, signal) => say("backed up", await archive.backup(file, signal))),
  );
}

/** Adds `todo restore`. */
export function addRestoreCommand(program: Command): void {
  const command = program
    .command("restore")
    .description("Make a store that is not there yet, or empty, from a back-up; not while a server runs.")
    .argument("<file>");
  addStoreOptions(command).action((file: string, flags: Flags) =>
    withArchive(flags, async (archive, signal) => say("restored", await archive.restore(file, signal))),
  );
}

function say(what: string, { todos, bytes, position }: Copied): void {
  process.stdout.write(`${what} ${todos} to-dos, ${bytes} bytes, position ${formatPosition(position)}\n`);
}
