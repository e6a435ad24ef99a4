import { ServiceError } from "../../error.ts";
import { errorMessage } from "../../error-message.ts";
import type { Log } from "./log.ts";
import type { LogLimiter } from "./log-limiter.ts";

/** The log fields of a failed request. */
export interface FailedRequest {
  readonly id: string | undefined;
  readonly method: string;
  readonly route: string;
  readonly trace: string | undefined;
}

const MAX_REASON_LENGTH = 200;

/** Returns a function that logs failed requests with the whole error, limited per route, code and reason. */
export function createErrorLog(
  log: Log,
  limiter: LogLimiter,
): (request: FailedRequest, error: ServiceError) => void {
  const write = limiter.topic((fields) => log.error(fields, "request failed"));
  return (request, error) => {
    const { code, cause = error } = error;
    write(`${request.route} ${code} ${describeCause(cause)}`, { ...request, code, err: cause });
  };
}

/** Returns the innermost message, truncated, to distinguish the causes of one code. */
const describeCause = (cause: unknown): string =>
  cause instanceof ServiceError && cause.cause !== undefined
    ? describeCause(cause.cause)
    : errorMessage(cause).slice(0, MAX_REASON_LENGTH);
