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
const MESSAGE = "request failed";

/** Returns a function that logs failed requests with the whole error, limited per route, code and reason. */
export function createErrorLog(
  log: Log,
  limiter: LogLimiter,
): (request: FailedRequest, error: ServiceError) => void {
  const write = limiter.topic((fields) => {
    try {
      log.error(fields, MESSAGE);
    } catch {
      // An error that a user's module throws can itself throw while it is serialized.
      log.error({ ...fields, err: undefined }, `${MESSAGE}; its error cannot be logged`);
    }
  });
  return (request, error) => {
    const { code, cause = error } = error;
    write(`${request.route} ${code} ${describeCause(cause)}`, { ...request, code, err: cause });
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
