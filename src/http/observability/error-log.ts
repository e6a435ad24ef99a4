import { ServiceError } from "../../error.ts";
import { errorMessage } from "../../error-message.ts";
import type { Log } from "./log.ts";
import type { LogLimiter } from "./log-limiter.ts";

const MAX_REASON_LENGTH = 200;

/** Returns a function that logs fields of failed requests with the whole error, limited per route, code and reason. */
export function createErrorLog(log: Log, limiter: LogLimiter) {
  const write = limiter.topic((fields) => log.error(fields, "request failed"));
  return (route: string, fields: object, error: ServiceError): void => {
    const { code, cause = error } = error;
    write(`${route} ${code} ${describeCause(cause)}`, { route, ...fields, code, err: cause });
  };
}

/** Returns the innermost message, truncated, to distinguish the causes of one code. */
const describeCause = (cause: unknown): string =>
  cause instanceof ServiceError && cause.cause !== undefined
    ? describeCause(cause.cause)
    : errorMessage(cause).slice(0, MAX_REASON_LENGTH);
