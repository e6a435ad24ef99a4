import { ERRORS, type ServiceError } from "../error.ts";
import type { TodoJson } from "../todo.ts";

/** The types of a response body. A Response shares a Blob and copies a Uint8Array. */
type Body = TodoJson | Blob | ReadableStream<Uint8Array<ArrayBuffer>>;

const RETRY_AFTER_SECONDS = "5";

/**
 * The headers of every response. They forbid browsers to guess a type, to frame a response, and to load it from another site
 * except by CORS. `Keep-Alive` says how long to reuse an idle connection: the runtime closes none before 8 seconds, and a
 * request takes time. Over HTTP/2, the runtime omits it (RFC 9113 §8.2.2).
 */
const COMMON_HEADERS = {
  "X-Content-Type-Options": "nosniff",
  "Content-Security-Policy": "frame-ancestors 'none'",
  "Cross-Origin-Resource-Policy": "same-origin",
  "Keep-Alive": "timeout=5",
  Vary: "Origin",
};

/** The header with the position of a list, or at which the store decided a write. Unlike `ETag`, no proxy rewrites it. */
export const TODO_POSITION = "Todo-Position";

// Shared Headers objects cost Bun less than an object literal for each response.
const prepared = (headers: Readonly<Record<string, string>>, status = 200) => ({
  status,
  headers: new Headers({ ...COMMON_HEADERS, ...headers }),
});
const JSON_TYPE = { "Content-Type": "application/json" };
const TEXT_TYPE = { "Content-Type": "text/plain; charset=utf-8" };
const JSON_OK = prepared(JSON_TYPE);
const LAST_PAGE = prepared({ ...JSON_TYPE, "Cache-Control": "no-cache" });
const PAGE = prepared({ ...JSON_TYPE, "Cache-Control": "no-cache" });
const CREATED = prepared(JSON_TYPE, 201);
const TEXT_OK = prepared(TEXT_TYPE);
const UNCACHED_TEXT = prepared({ ...TEXT_TYPE, "Cache-Control": "no-store" });
const CHANGED = prepared(JSON_TYPE);
const DELETED = prepared({}, 204);

/** Returns a 200 with a JSON body. */
export const json = (body: Body): Response => new Response(body, JSON_OK);

/** Returns a 200 with a plain-text body. */
export const text = (body: string): Response => new Response(body, TEXT_OK);

/** Returns a 200 with a plain-text body that no cache may store. */
export const uncachedText = (body: string): Response => new Response(body, UNCACHED_TEXT);

/** Returns a 204. */
export const noContent = (): Response => respond(204, {});

/** Returns a 201 with a to-do and its `Location`. `position` is where the store decided the write. */
export function created(body: TodoJson, location: string, position: string): Response {
  CREATED.headers.set("Location", location);
  return at(position, body, CREATED);
}

/** Returns a 200 with a to-do after a change. */
export const changed = (body: TodoJson, position: string): Response => at(position, body, CHANGED);

/** Returns a 204 after a deletion. */
export const deleted = (position: string): Response => at(position, null, DELETED);

/** Returns a response with a position. It copies its headers, so one Headers object can be reused. */
function at(position: string, body: Body | null, init: { readonly headers: Headers }): Response {
  init.headers.set(TODO_POSITION, position);
  return new Response(body, init);
}

/** Returns a 200 with a list at a position. `link` is the `Link` header of a page that has a next one. */
export function list(body: Body, position: string, link: string | undefined): Response {
  const init = link === undefined ? LAST_PAGE : PAGE;
  init.headers.set("ETag", `"${position}"`);
  if (link !== undefined) init.headers.set("Link", link);
  return at(position, body, init);
}

/** Returns a response with the given status, headers and body, and with the common headers. */
export function respond(
  status: number,
  headers: Readonly<Record<string, string>>,
  body: Body | null = null,
): Response {
  return new Response(body, { status, headers: { ...COMMON_HEADERS, ...headers } });
}

/** Returns a response with the given status and headers, and an object or an array as JSON. */
export const respondJson = (
  status: number,
  json: object,
  headers: Readonly<Record<string, string>> = {},
): Response => respond(status, { ...JSON_TYPE, ...headers }, JSON.stringify(json));

/** Adds the common headers to a response that was made elsewhere. */
export function secure(response: Response): Response {
  for (const [name, value] of Object.entries(COMMON_HEADERS)) response.headers.set(name, value);
  return response;
}

/** Keeps a response out of all caches (RFC 9111 §5.2.2.5). */
export function forbidStoring(response: Response): Response {
  const { headers } = response;
  if (headers.get("cache-control")?.includes("no-store") !== true) headers.set("Cache-Control", "no-store");
  return response;
}

/** Makes a response the last one of its connection (RFC 9112 §9.6). */
export function forbidReuse(headers: Headers): void {
  headers.set("Connection", "close");
  headers.delete("Keep-Alive");
}

/** Returns an error as `application/problem+json` (RFC 9457), without its cause. */
export function problem({ code, detail, errors, headers }: ServiceError): Response {
  const { status, title } = ERRORS[code];
  const retry = status === 503 ? { "Retry-After": RETRY_AFTER_SECONDS } : undefined;
  return respond(
    status,
    { ...retry, ...headers, "Content-Type": "application/problem+json" },
    JSON.stringify({ type: `/docs#${code}`, title, status, code, detail, errors }),
  );
}
