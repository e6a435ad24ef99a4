import { ServiceError } from "../error.ts";
import { errorMessage } from "../error-message.ts";
import { StoreUnavailableError } from "../storage/store.ts";

export const FAILED_EXIT_CODE = 1;
export const USAGE_EXIT_CODE = 2;
const NOT_FOUND_EXIT_CODE = 3;
export const UNAUTHORIZED_EXIT_CODE = 4;
/** The exit code after SIGINT, by convention of shells. */
export const INTERRUPTED_EXIT_CODE = 130;

/** A failure that ends the command with an exit code, and with a message that says what to do. */
export class CommandError extends Error {
  readonly exitCode: number;

  constructor(message: string, exitCode = FAILED_EXIT_CODE, options?: ErrorOptions) {
    super(message, options);
    this.exitCode = exitCode;
  }
}

/** An error in how the command was called. */
export class UsageError extends CommandError {
  constructor(message: string, options?: ErrorOptions) {
    super(message, USAGE_EXIT_CODE, options);
  }
}

/** Returns the error of a command whose argument names nothing that exists. */
export const notFound = (message: string): CommandError => new CommandError(message, NOT_FOUND_EXIT_CODE);

/** Returns the error of a command that Ctrl-C ended. */
export const interrupted = (): CommandError => new CommandError("interrupted", INTERRUPTED_EXIT_CODE);

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
export function toStoreError(source: string, error: unknown): CommandError {
  if (!(error instanceof StoreUnavailableError)) return toUsageError(source, error);
  return new CommandError(`${source}: ${error.message}`, FAILED_EXIT_CODE, { cause: error });
}

/** Returns the result of `act`. Throws a UsageError that names the subject if `act` throws. */
export function asUsageError<T>(subject: string, act: () => T): T {
  try {
    return act();
  } catch (error) {
    throw toUsageError(subject, error);
  }
}
