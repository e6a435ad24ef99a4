import { CommandError, INTERRUPTED_EXIT_CODE } from "../config/usage-error.ts";
import type { CommandProcess } from "./terminal/output.ts";

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

/** Returns the error of a command that Ctrl-C ended. */
export const interrupted = (): CommandError => new CommandError("interrupted", INTERRUPTED_EXIT_CODE);

/** Settles as the promise does, or rejects with the reason of the signal if that aborts first. */
export function unlessAborted<T>(signal: AbortSignal, promise: Promise<T>): Promise<T> {
  const aborted = Promise.withResolvers<never>();
  const onAbort = () => aborted.reject(signal.reason);
  signal.addEventListener("abort", onAbort);
  if (signal.aborted) onAbort();
  return Promise.race([promise, aborted.promise]).finally(() => signal.removeEventListener("abort", onAbort));
}
