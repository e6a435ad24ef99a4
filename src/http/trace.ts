/** Version, trace id, parent id, flags: 55 characters in version 00, perhaps more behind them in a later one. */
const TRACEPARENT =
  /^(?:00(?=.{53}$)|(?!00|ff)[0-9a-f]{2})-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(?:-.*)?$/;

/** The id of the trace that a request is part of (W3C Trace Context §3.2); `undefined` when it names none properly. */
export function traceOf({ headers }: Request): string | undefined {
  return TRACEPARENT.exec(headers.get("traceparent") ?? "")?.[1];
}
