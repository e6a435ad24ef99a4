import type { Command } from "commander";
import { type Flags, readStoreUrl } from "../config/config.ts";
import { SETTINGS, SettingOption } from "../config/settings.ts";
import { asUsageError, CommandError, interrupted, UsageError } from "../config/usage-error.ts";
import { errorMessage } from "../error-message.ts";
import { PreconditionError, type StoreAdmin, type TaskOptions } from "../storage/maintenance.ts";
import { openStoreAdmin } from "../storage/open.ts";
import { type CommandProcess, ProgressLine } from "./terminal/output.ts";

/**
 * Runs the work of a command. The first SIGINT or SIGTERM aborts its signal; the next one ends the process. Throws every
 * failure as a CommandError.
 * @param toError returns the CommandError of any other error
 */
export async function runCommand(
  process: CommandProcess,
  work: (signal: AbortSignal) => Promise<void>,
  toError: (error: unknown) => CommandError,
): Promise<void> {
  const interrupt = new AbortController();
  for (const signal of ["SIGINT", "SIGTERM"] as const) process.once(signal, () => interrupt.abort());
  try {
    await work(interrupt.signal);
  } catch (error) {
    if (error instanceof CommandError) throw error;
    throw interrupt.signal.aborted ? interrupted() : toError(error);
  }
}

/** The URLs of SQLite files, and of every store that outlives its server. */
export const SQLITE_URL = "sqlite:PATH";
export const KEPT_URLS = `${SQLITE_URL} or postgres://…`;

/**
 * Adds a command with the options that select its store.
 * @param urls the URLs that the command accepts
 */
export function addStoreCommand(program: Command, name: string, description: string, urls: string): Command {
  const { flag, file, parse } = SETTINGS.store.url;
  return program
    .command(name)
    .description(description)
    .addOption(new SettingOption({ flag, parse, description: `store to use: ${urls}` }))
    .addOption(new SettingOption(file));
}

/** Runs `work` on a store, and shows its progress on a terminal. Throws a UsageError if a precondition is not met. */
export function runOnStore(
  process: CommandProcess,
  flags: Flags,
  work: (store: StoreAdmin, task: TaskOptions) => Promise<void>,
  { value, source } = readStoreUrl(flags, process.env),
): Promise<void> {
  const store = asUsageError(source, () => openStoreAdmin(value));
  const progress = new ProgressLine(process.stderr);
  return runCommand(
    process,
    (signal) => work(store, { signal, onProgress: progress.report }).finally(() => progress.clear()),
    (error) =>
      error instanceof PreconditionError
        ? new UsageError(error.message)
        : new CommandError(errorMessage(error)),
  );
}
