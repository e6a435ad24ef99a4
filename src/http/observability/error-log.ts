import { ServiceError } from "../../error.ts";
import { errorMessage } from "../../error-message.ts";
import type { Log } from "./log.ts";
import type { LogLimiter } from "./log-limiter.ts";

const MAX_REASON_LENGTH = 200;
const MESSAGE = "request failed";

/** Returns a function that logs fields of failed requests with the whole error, limited per route, code and reason. */
export function createErrorLog(log: Log, limiter: LogLimiter) {
  const write = limiter.topic((fields) => {
    try {
      log.error(fields, MESSAGE);
    } catch {
      // An error that a user's module throws can itself throw while it is serialized.
      log.error({ ...fields, err: undefined }, `${MESSAGE}; its error cannot be logged`);
    }
  });
  return (route: string, fields: object, error: ServiceError): void => {
    const { code, cause = error } = error;
    write(`${route} ${code} ${describeCause(cause)}`, { route, ...fields, code, err: cause });
  };
}

/** Returns the innermost message, truncated, to distinguish the causes of one code. */
function describeCause(cause: unknown): string {
  try {
    if (cause instanceof ServiceError && cause.cause !== undefined) return describeCause(cause.cause);
    return errorMessage(cause).slice(0, MAX_REASON_LENGTH);
  } catch {
    return "unreadable";
  }
}
