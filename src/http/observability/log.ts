import { isKeyId } from "../../credential/key.ts";
import { ServiceError } from "../../error.ts";
import { errorMessage } from "../../error-message.ts";
import type { RoutedRequest } from "../route.ts";
import type { LogLimiter } from "./log-limiter.ts";

/** The levels that the server can log from, lowest first. */
export const LOG_LEVELS = ["info", "warn", "error", "silent"] as const;

/** A logger, such as pino's. The service never passes credentials or bodies to it. */
export interface Log {
  info(fields: object, message: string): void;
  warn(fields: object, message: string): void;
  error(fields: object, message: string): void;
}

/** A logger that writes nothing. */
export const NOOP_LOG: Log = { info() {}, warn() {}, error() {} };

const DIGITS = /^\d{1,20}$/;

/** Returns the path of a request. Other texts than an id stay a pattern, because they may be a secret. */
export function loggedPath(route: string, { params: { id } }: RoutedRequest): string {
  if (id === undefined) return route;
  const isValid = route.startsWith("/admin/") ? isKeyId(id) : DIGITS.test(id);
  return isValid ? route.replace(":id", id) : route;
}

/** Matches version, trace id, parent id and flags. Version 00 has 55 characters; a later version may have more. */
const TRACEPARENT =
  /^(?:00(?=.{53}$)|(?!00|ff)[0-9a-f]{2})-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(?:-.*)?$/;

/** Returns the trace id of a request (W3C Trace Context §3.2), or `undefined` without a valid `traceparent`. */
export function traceId({ headers }: Request): string | undefined {
  return TRACEPARENT.exec(headers.get("traceparent") ?? "")?.[1];
}

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
