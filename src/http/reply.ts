import type { Failure, FailureCode } from "../failure.ts";
import type { TodoJson } from "../todo.ts";

type Body = TodoJson | ReadableStream<Uint8Array<ArrayBuffer>>;

/** The one table from failures to HTTP: status and title (RFC 9457 §3.1). */
const PROBLEMS: Readonly<Record<FailureCode, readonly [status: number, title: string]>> = {
  invalid_id: [400, "The id is not an unsigned 64-bit integer"],
  invalid_query: [400, "A query parameter has a bad value"],
  invalid_json: [400, "The body is not JSON"],
  invalid_idempotency_key: [400, "The Idempotency-Key is not one"],
  unauthorized: [401, "Credentials are missing or wrong"],
  https_required: [403, "Passwords are taken over HTTPS only"],
  cross_site_write: [403, "A page of another site may not write here"],
  route_not_found: [404, "There is nothing at this path"],
  todo_not_found: [404, "There is no to-do with this id"],
  key_not_found: [404, "There is no key with this id"],
  method_not_allowed: [405, "This path does not know this method"],
  key_exists: [409, "There is a key with this name already"],
  idempotency_key_in_flight: [409, "A request with this Idempotency-Key is not answered yet"],
  body_too_large: [413, "The body is too large"],
  unsupported_media_type: [415, "The body is not of a type that is taken here"],
  misdirected_host: [421, "This server does not answer for this host"],
  validation_failed: [422, "The body breaks a rule"],
  idempotency_key_reused: [422, "This Idempotency-Key came with another body before"],
  too_many_failures: [429, "Too many wrong passwords"],
  internal_error: [500, "Something went wrong here"],
  store_unavailable: [503, "The store cannot answer now"],
  credentials_unavailable: [503, "Credentials cannot be checked now"],
  overloaded: [503, "The server has too much to do"],
  stopping: [503, "The server is stopping"],
  store_full: [507, "The store is full"],
};

const RETRY_AFTER_SECONDS = "5";

/** Nothing here is to be guessed at, framed, or loaded by another site's page but by CORS. */
const SAFE = {
  "X-Content-Type-Options": "nosniff",
  "Content-Security-Policy": "frame-ancestors 'none'",
  "Cross-Origin-Resource-Policy": "same-origin",
  Vary: "Origin",
};

// Headers objects made once: cheaper for Bun than object literals at each response.
const JSON_OK = { headers: new Headers({ ...SAFE, "Content-Type": "application/json" }) };
const WHOLE_LIST = { headers: new Headers(JSON_OK.headers) };
WHOLE_LIST.headers.set("Cache-Control", "no-cache");
const CREATED = { status: 201, headers: new Headers(JSON_OK.headers) };
const TEXT_OK = { headers: new Headers({ ...SAFE, "Content-Type": "text/plain; charset=utf-8" }) };
const EMPTY = { status: 204, headers: new Headers(SAFE) };

export const json = (body: Body): Response => new Response(body, JSON_OK);

export const text = (body: string): Response => new Response(body, TEXT_OK);

export const noContent = (): Response => new Response(null, EMPTY);

export function created(body: Body, location: string): Response {
  // A response copies its headers, so that one object can serve them all.
  CREATED.headers.set("Location", location);
  return new Response(body, CREATED);
}

/** A list that is all on one page, and at hand. */
export function wholeList(body: Body, etag: string): Response {
  WHOLE_LIST.headers.set("ETag", etag);
  return new Response(body, WHOLE_LIST);
}

/** A response without a body, or with one whose headers are its own. */
export function reply(
  status: number,
  headers: Readonly<Record<string, string>>,
  body: Body | null = null,
): Response {
  return new Response(body, { status, headers: { ...SAFE, ...headers } });
}

/** A failure as `application/problem+json` (RFC 9457); nothing of its cause gets out. */
export function problem({ code, detail, errors, headers }: Failure): Response {
  const [status, title] = PROBLEMS[code];
  const retry = status === 503 ? { "Retry-After": RETRY_AFTER_SECONDS } : undefined;
  return reply(
    status,
    { ...retry, ...headers, "Content-Type": "application/problem+json" },
    JSON.stringify({ title, status, code, detail, errors }),
  );
}
