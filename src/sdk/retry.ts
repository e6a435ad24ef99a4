import { TodoApiError } from "./types.ts";

const RETRY_BASE_MS = 200;
/** The longest wait between two attempts. A longer `Retry-After` fails the call instead. */
export const RETRY_MAX_MS = 10_000;

/** Returns whether a proxy that cannot reach the service responds with this status (RFC 9110 §15.6). */
export const isProxyFailure = (status = 0): boolean => status >= 502 && status <= 504;

/** Returns whether another attempt may succeed. */
export function isTransient(error: unknown): error is TodoApiError {
  if (!(error instanceof TodoApiError)) return false;
  const { status = 0 } = error;
  // Without a status, there was no response. A success with an unreadable body was cut off on the way.
  // 408 and 429 ask for a later attempt (RFC 9110 §15.5.9, RFC 6585 §4).
  return status < 300 || status === 408 || status === 429 || isProxyFailure(status);
}

/** Returns whether an event stream goes on after an error. It waits for the service anyway, so also after a 500. */
export const isRecoverable = (error: unknown): error is TodoApiError =>
  isTransient(error) || (error instanceof TodoApiError && (error.status ?? 0) >= 500);

/** Returns whether the service rejected the credentials. */
export const isUnauthorized = (error: unknown): boolean =>
  error instanceof TodoApiError && error.code === "unauthorized";

/**
 * Returns the milliseconds to wait before the next attempt: exponential backoff, of which half is random, and at least
 * what `Retry-After` asks for.
 * @param maxMs the longest backoff
 */
export function retryDelay(attempt: number, error?: TodoApiError, maxMs = RETRY_MAX_MS): number {
  const backoff = Math.min(RETRY_BASE_MS * 2 ** attempt, maxMs);
  return Math.max((error?.retryAfter ?? 0) * 1000, backoff * (0.5 + Math.random() / 2));
}

/** Returns `Retry-After` in seconds. The header holds a number or a date (RFC 9110 §10.2.3). */
export function parseRetryAfter({ headers }: Response): number | undefined {
  const text = headers.get("retry-after");
  if (text === null) return undefined;
  const seconds = /^\d+$/.test(text) ? Number(text) : (Date.parse(text) - Date.now()) / 1000;
  return seconds >= 0 ? seconds : undefined;
}

/** The longest delay of a timer, about 25 days. A longer one would fire at once. */
const MAX_TIMER_MS = 2 ** 31 - 1;

/** Starts a timer. Delays above the maximum of a timer are shortened to it. */
export const startTimer = (ms: number, callback: () => void) =>
  setTimeout(callback, Math.min(ms, MAX_TIMER_MS));

/** Resolves after the delay, or when the signal aborts. */
export function delay(ms: number, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve) => {
    const end = (): void => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", end);
      resolve();
    };
    const timer = startTimer(ms, end);
    signal?.addEventListener("abort", end);
    if (signal?.aborted) end();
  });
}
