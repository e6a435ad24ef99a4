/** Matches version, trace id, parent id and flags. Version 00 has 55 characters; a later version may have more. */
const TRACEPARENT =
  /^(?:00(?=.{53}$)|(?!00|ff)[0-9a-f]{2})-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(?:-.*)?$/;

/** Returns the trace id of a request (W3C Trace Context §3.2), or `undefined` without a valid `traceparent`. */
export function traceId({ headers }: Request): string | undefined {
  return TRACEPARENT.exec(headers.get("traceparent") ?? "")?.[1];
}
