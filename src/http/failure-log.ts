import { Failure, type FailureCode } from "../failure.ts";
import type { Log } from "./log.ts";

/** A store that is away fails each request alike: in so long, one of them is enough with all of its error. */
const WHOLE_EVERY_MS = 10_000;

/**
 * Writes a line for each request that failed by our own fault: an `internal_error` with all that is known of it, any
 * other code so once in ten seconds, and in between with the reason alone.
 * @param now milliseconds of a steady clock
 */
export function failureLog(log: Log, now: () => number): (fields: object, failure: Failure) => void {
  const wholeAt = new Map<FailureCode, number>();
  return (fields, failure) => {
    const { code, cause = failure } = failure;
    try {
      log.error({ ...fields, code, ...(isDue(code) ? { err: cause } : { reason: reasonOf(cause) }) }, FAILED);
    } catch {
      // What a module of the user's throws may even throw while it is read.
      log.error({ ...fields, code }, `${FAILED}, of what cannot be logged`);
    }
  };

  function isDue(code: FailureCode): boolean {
    if (code === "internal_error") return true;
    const last = wholeAt.get(code);
    const at = now();
    if (last !== undefined && at - last < WHOLE_EVERY_MS) return false;
    wholeAt.set(code, at);
    return true;
  }
}

const FAILED = "request failed";

function reasonOf(cause: unknown): string {
  if (cause instanceof Failure && cause.cause !== undefined) return reasonOf(cause.cause);
  return cause instanceof Error ? cause.message : String(cause);
}
