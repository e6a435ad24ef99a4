import type { Command } from "commander";
import { errorMessage } from "../error-message.ts";
import { type Maintenance, PreconditionError } from "../storage/maintenance.ts";
import { openMaintenance } from "../storage/open.ts";
import { type Flags, readStore } from "./config.ts";
import { optionFor, SETTINGS } from "./settings.ts";
import { asUsageError, UsageError } from "./usage-error.ts";

/** Adds the options that select the store of a command. */
export function addStoreOptions(command: Command): Command {
  return command.addOption(optionFor(SETTINGS.store)).addOption(optionFor(SETTINGS.storeFile));
}

/** Runs `work` on the configured store, as `maintain` does. */
export function withMaintenance(
  flags: Flags,
  work: (maintenance: Maintenance, signal: AbortSignal) => Promise<void>,
): Promise<void> {
  const { value, source } = readStore(flags, process.env);
  if (value === "memory:") throw new UsageError("the memory store keeps nothing: set --store sqlite:PATH");
  return maintain(value, source, work);
}

/**
 * Returns the URL of a SQLite file that an argument names as PATH or sqlite:PATH. Throws a UsageError for other stores. It
 * does not repeat them, because they may contain a password.
 */
export function sqliteUrl(argument: string, command: Command): string {
  if (argument.startsWith("sqlite:")) return argument;
  if (argument === "memory:" || /^postgres(?:ql)?:\/\//.test(argument))
    throw new UsageError(`todo ${command.name()} is for SQLite files: give PATH or sqlite:PATH`);
  return `sqlite:${argument}`;
}

/**
 * Runs `work` on the store at a URL. SIGINT and SIGTERM abort it. Throws a UsageError if a precondition is not met; any
 * other failure exits with one line and exit code 1.
 * @param setting what named the store, for error messages
 */
export async function maintain(
  url: string,
  setting: string,
  work: (maintenance: Maintenance, signal: AbortSignal) => Promise<void>,
): Promise<void> {
  try {
    const maintenance = asUsageError(setting, () => openMaintenance(url));
    await work(maintenance, stopSignal());
  } catch (error) {
    if (error instanceof PreconditionError) throw new UsageError(error.message);
    if (error instanceof UsageError) throw error;
    process.stderr.write(`todo: ${errorMessage(error)}\n`);
    process.exit(1);
  }
}

/** Settles as the promise does, or rejects with the reason of the signal if that aborts first. */
export function unlessAborted<T>(signal: AbortSignal, promise: Promise<T>): Promise<T> {
  const aborted = Promise.withResolvers<never>();
  const onAbort = () => aborted.reject(signal.reason);
  signal.addEventListener("abort", onAbort);
  if (signal.aborted) onAbort();
  return Promise.race([promise, aborted.promise]).finally(() => signal.removeEventListener("abort", onAbort));
}

/** Returns a signal that the first SIGINT or SIGTERM aborts. The next one ends the process. */
function stopSignal(): AbortSignal {
  const controller = new AbortController();
  for (const signal of ["SIGINT", "SIGTERM"] as const) {
    process.once(signal, () => controller.abort(new Error(`interrupted by ${signal}`)));
  }
  return controller.signal;
}
