/** The product's checks of a request's headers, for peers that are to do the same. */
const LOOPBACK_HOST = /^(?:localhost|127(?:\.\d{1,3}){3}|\[::1\])(?::\d{1,5})?$/i;
const LOOPBACK_ORIGIN = /^https?:\/\/(?:localhost|127(?:\.\d{1,3}){3}|\[::1\])(?::\d{1,5})?$/;

/** The response headers that allow a page of this origin to read. Undefined without an Origin on loopback. */
export function corsHeaders({ headers }: Request): Record<string, string> | undefined {
  const origin = headers.get("origin");
  if (origin === null || !LOOPBACK_ORIGIN.test(origin)) return undefined;
  return {
    "access-control-allow-origin": origin,
    "access-control-expose-headers": "ETag, Link, Location, Retry-After, Todo-Position, X-Request-Id",
  };
}

/** Returns the status to reject a request with: for a foreign Host, or a write by another site's page. */
export function rejection({ method, headers }: Request): 421 | 403 | undefined {
  const host = headers.get("host");
  if (host !== null && !LOOPBACK_HOST.test(host)) return 421;
  if (method === "GET" || headers.get("sec-fetch-site") !== "cross-site") return undefined;
  const origin = headers.get("origin");
  return origin !== null && LOOPBACK_ORIGIN.test(origin) ? undefined : 403;
}

/** The headers of every response of the product. */
export const SECURITY_HEADERS = {
  "x-content-type-options": "nosniff",
  "content-security-policy": "frame-ancestors 'none'",
  "cross-origin-resource-policy": "same-origin",
  vary: "Origin",
};
