import { linkAbort } from "./abort.ts";
import { check, hasTexts } from "./json.ts";
import { isProxyFailure, parseRetryAfter, startTimer } from "./retry.ts";
import {
  type AdminCredentials,
  type CallOptions,
  type ErrorCode,
  type FieldError,
  TodoApiError,
  type TodoId,
} from "./types.ts";

/** A stream without data for this long is lost. The service sends a comment every 15 seconds. */
const STREAM_IDLE_MS = 30_000;

/** What one call of the client sends. */
export interface Call {
  readonly method: string;
  /** The path below the base URL. */
  readonly path: string;
  /** Sent as JSON. */
  readonly body?: object | undefined;
  readonly accept?: string;
  readonly idempotencyKey?: string;
}

/** Reads the result of a call. Throws a SyntaxError if the response is not what the service sends. */
export type Read<T> = (response: Response, text: string) => T;

/** One request and its response, while the response is read. */
export interface Exchange {
  readonly response: Response;
  /** Yields the pieces of the body as text, once. */
  readonly pieces: AsyncIterable<string>;
  /** Releases the connection. Call it also after the body was read to its end. */
  readonly close: () => void;
}

/**
 * Sends one request. Resolves when the response's head has arrived. Rejects with `timeout`, `network_error` or the
 * signal's reason.
 */
export async function openExchange(
  fetch: (url: string, init: RequestInit) => Promise<Response>,
  url: string,
  init: Omit<RequestInit, "signal"> & { readonly signal: AbortSignal | undefined },
  timeoutMs: number,
): Promise<Exchange> {
  const { method, signal: callerSignal } = init;
  callerSignal?.throwIfAborted();
  const { signal, abort } = linkAbort(callerSignal);
  let isLate = false;
  const withTimeout = async <T>(ms: number, promise: Promise<T>): Promise<T> => {
    const timer = startTimer(ms, () => {
      isLate = true;
      abort();
    });
    try {
      return await promise;
    } catch (cause) {
      callerSignal?.throwIfAborted();
      const reason = isLate ? `no data for ${ms} ms` : "no response";
      throw new TodoApiError(isLate ? "timeout" : "network_error", `${method} ${url}: ${reason}`, { cause });
    } finally {
      clearTimeout(timer);
    }
  };
  try {
    const response = await withTimeout(timeoutMs, fetch(url, { ...init, signal }));
    const idleMs = isEventStream(response) ? STREAM_IDLE_MS : timeoutMs;
    const pieces = readPieces(response, (piece) => withTimeout(idleMs, piece));
    return { response, pieces, close: abort };
  } catch (error) {
    abort();
    throw error;
  }
}

/** Yields the pieces of the body as text. */
async function* readPieces(
  response: Response,
  wait: <T>(piece: Promise<T>) => Promise<T>,
): AsyncGenerator<string, void, undefined> {
  const reader = response.body?.getReader();
  const decoder = new TextDecoder();
  // React Native does not have `body`.
  if (response.body === undefined) yield await wait(response.text());
  while (reader !== undefined) {
    const { value } = await wait(reader.read());
    if (value === undefined) return;
    yield decoder.decode(value, { stream: true });
  }
}

/** Returns the headers of a call. Throws a TypeError for one that HTTP does not allow. @param given replaces `authorization` */
export function buildHeaders(
  { body, accept, idempotencyKey: key }: Call,
  authorization: string | undefined,
  given: CallOptions["headers"],
): Headers {
  const values: Readonly<Record<string, string | undefined>> = {
    Authorization: authorization,
    ...given,
    "Content-Type": body && "application/json",
    Accept: accept,
    // A string of Structured Fields (RFC 9651 §3.3.3).
    "Idempotency-Key": key === undefined ? key : `"${key.replace(/["\\]/g, "\\$&")}"`,
  };
  const all = new Headers();
  for (const [name, value] of Object.entries(values)) if (value !== undefined) all.set(name, value);
  return all;
}

/** Returns the header value of Basic credentials (RFC 7617). Throws a TypeError if the name contains a colon. */
export function basicAuthorization({ name, password }: AdminCredentials): string {
  if (name.includes(":")) throw new TypeError(`admin.name: "${name}" must not contain a colon`);
  const bytes = new TextEncoder().encode(`${name}:${password}`);
  return `Basic ${btoa(String.fromCharCode(...bytes))}`;
}

/** Returns an id as a segment of a path. Throws `code` for an id that would make the path one of another route. */
export function toSegment(id: TodoId | bigint, code: "invalid_id" | "key_not_found"): string {
  const text = String(id);
  // URLs drop the segments "." and "..".
  if (/^\.{0,2}$/.test(text)) throw new TodoApiError(code, `"${text}" is not an id`);
  return encodeURIComponent(text);
}

/** Reads the body. */
export async function readText({ pieces }: Exchange): Promise<string> {
  let text = "";
  for await (const piece of pieces) text += piece;
  return text;
}

/** Throws the error in a response that is not a success. */
export function throwProblem(response: Response, text: string): never {
  throw interpret(response, () => {
    const problem: unknown = JSON.parse(text);
    check(isProblem(problem));
    const { code, title, detail, errors: fields = [] } = problem;
    const reason = fields.map(({ field, message }) => `${field} ${message}`).join(", ") || detail;
    const message = reason === undefined ? title : `${title}: ${reason}`;
    return new TodoApiError(code, message, { ...toErrorOptions(response), detail, fields });
  });
}

/** Returns what `read` returns. If `read` throws, the response is not from this service: `unexpected_answer`. */
export function interpret<T>(response: Response, read: () => T): T {
  try {
    return read();
  } catch (cause) {
    const message = describeForeign(response);
    throw new TodoApiError("unexpected_answer", message, { ...toErrorOptions(response), cause });
  }
}

/** Says what a response means that is not from this service. */
function describeForeign({ ok, status, headers }: Response): string {
  // Browsers hide the status and the target of a redirect.
  if (!ok && status < 400) return `unexpected redirect to ${headers.get("location") ?? "elsewhere"}`;
  const reason = isProxyFailure(status) ? "the proxy cannot reach the" : "the response is not from a";
  return `${reason} to-do service (status ${status})`;
}

/** Returns what errors contain of a response. */
const toErrorOptions = (response: Response) => ({
  status: response.status,
  retryAfter: parseRetryAfter(response),
  requestId: response.headers.get("x-request-id") ?? undefined,
  position: readPosition(response),
});

/** Returns the position at which the service decided a write. */
export const readPosition = ({ headers }: Response): string | undefined =>
  headers.get("todo-position") ?? undefined;

/** Reads the response to a deletion. Throws a SyntaxError if it is not one. */
export function readDeletion({ ok, status }: Response): undefined {
  check(!ok || status === 204);
}

export const isOfType = ({ headers }: Response, mediaType: string): boolean =>
  headers.get("content-type")?.startsWith(mediaType) === true;

export const isEventStream = (response: Response): boolean =>
  response.ok && isOfType(response, "text/event-stream");

/** A problem of the service (RFC 9457). */
interface Problem {
  readonly title: string;
  readonly code: ErrorCode;
  readonly detail?: string;
  readonly errors?: readonly FieldError[];
}

const isProblem = (value: unknown): value is Problem => hasTexts(value, "code", "title");
