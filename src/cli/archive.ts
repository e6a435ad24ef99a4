import type { Command } from "commander";
import { type Archive, Refusal } from "../storage/archive.ts";
import { openArchive } from "../storage/open.ts";
import { type Flags, optionFor, readStore, SETTINGS, UsageError } from "./config.ts";

/** Adds the options that say which store a command works on. */
export function addStoreOptions(command: Command): Command {
  return command.addOption(optionFor(SETTINGS.store)).addOption(optionFor(SETTINGS.storeFile));
}

/**
 * Works on the store that the settings name, until it is done or a signal breaks it off. What was asked wrongly
 * is a UsageError; any other failure ends the process with one line and exit code 1.
 */
export async function withArchive(
  flags: Flags,
  work: (archive: Archive, signal: AbortSignal) => Promise<void>,
): Promise<void> {
  const url = readStore(flags, process.env);
  try {
    await work(openConfiguredArchive(url), stopSignal());
  } catch (error) {
    if (error instanceof Refusal) throw new UsageError(error.message);
    if (error instanceof UsageError) throw error;
    process.stderr.write(`todo: ${error instanceof Error ? error.message : error}\n`);
    process.exit(1);
  }
}

/** What a promise comes to; rejects with the signal's reason when that comes first. */
export function unlessAborted<T>(signal: AbortSignal, promise: Promise<T>): Promise<T> {
  const aborted = Promise.withResolvers<never>();
  const onAbort = () => aborted.reject(signal.reason);
  signal.addEventListener("abort", onAbort);
  if (signal.aborted) onAbort();
  return Promise.race([promise, aborted.promise]).finally(() => signal.removeEventListener("abort", onAbort));
}

function openConfiguredArchive(url: string): Archive {
  try {
    return openArchive(url);
  } catch (error) {
    throw new UsageError(`TODO_STORE: ${error instanceof Error ? error.message : error}`);
  }
}

/** Aborts with the first SIGINT or SIGTERM; the next one ends the process as it stands. */
function stopSignal(): AbortSignal {
  const controller = new AbortController();
  for (const signal of ["SIGINT", "SIGTERM"] as const) {
    process.once(signal, () => controller.abort(new Error(`broken off by ${signal}`)));
  }
  return controller.signal;
}
