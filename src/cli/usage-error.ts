import { ServiceError } from "../error.ts";
import { errorMessage } from "../error-message.ts";
import { StoreUnavailableError } from "../storage/store.ts";

/** The exit code of a process that was called wrongly. */
export const USAGE_EXIT_CODE = 2;

/** An error in how the command was called, in one line that says what to do. The command exits with code 2. */
export class UsageError extends Error {
  override readonly name = "UsageError";
}

/** Returns an error as a UsageError that names its subject, such as a flag with its value. */
export function toUsageError(subject: string, error: unknown): UsageError {
  const violations = error instanceof ServiceError ? error.errors : undefined;
  const reason = violations?.map(({ message }) => message).join(", ") ?? errorMessage(error);
  return new UsageError(`${subject}: ${reason}`, { cause: error });
}

/**
 * Returns an error of opening the configured store: a UsageError unless the same call may succeed later.
 * @param source the flag or variable that names the store
 */
export function toStoreError(source: string, error: unknown): Error {
  if (!(error instanceof StoreUnavailableError)) return toUsageError(source, error);
  return new StoreUnavailableError(`${source}: ${error.message}`, { cause: error });
}

/** Returns the result of `act`. Throws a UsageError that names the subject if `act` throws. */
export function asUsageError<T>(subject: string, act: () => T): T {
  try {
    return act();
  } catch (error) {
    throw toUsageError(subject, error);
  }
}
