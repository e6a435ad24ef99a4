import { ServiceError } from "../../error.ts";
import { respond } from "../response.ts";
import type { HttpServer } from "../route.ts";
import { isLocalHost, isLoopbackHost, isLoopbackOrigin } from "./address.ts";
import type { GetConnectionInfo, Network } from "./connection.ts";

/** `*` does not include `Authorization` (Fetch §4.9). It works because responses never allow credentials. */
const REQUEST_HEADERS = "Authorization, *";
const EXPOSED_HEADERS = "ETag, Link, Location, Retry-After, Todo-Position, X-Request-Id";

export type OriginPolicy = ReturnType<typeof createOriginPolicy>;

/** Decides which hosts and origins the server accepts. */
export function createOriginPolicy(
  { onLoopback, allowedHosts, ownHost, corsOrigins }: Network,
  getConnectionInfo: GetConnectionInfo,
) {
  const own = ownHost === undefined ? [] : [ownHost];
  const hosts = new Set([...own, ...allowedHosts].flatMap(spellings));
  const origins = new Set(corsOrigins);
  // On loopback, a hostile network must not reach the server with a local name of its own, such as printer.local.
  const isStrict = onLoopback || allowedHosts.length > 0;
  /** Returns the origin of a request if its pages may use the API. */
  const allowedOrigin = ({ headers }: Request): string | undefined => {
    const origin = headers.get("origin");
    if (origin === null) return undefined;
    const isLocal = isLoopbackOrigin(origin) && isLoopbackHost(headers.get("host") ?? "");
    return isLocal || origins.has(origin) ? origin : undefined;
  };
  /** Whether a browser has checked the host's certificate, or a trusted proxy has chosen to forward this host. */
  const isVouchedFor = (request: Request, server: HttpServer): boolean =>
    server.protocol === "https" || getConnectionInfo(request, server).forwarding === "used";
  return {
    allowedOrigin,
    /** Throws `misdirected_host` for a `Host` that is not this server's, which prevents DNS rebinding. */
    requireHost: (request: Request, server: HttpServer): void => {
      const host = request.headers.get("host");
      // Every browser sends Host, so a request without it cannot be an attack by DNS rebinding.
      if (host === null || isLoopbackHost(host) || hosts.has(host.toLowerCase())) return;
      if (!isStrict && (isLocalHost(host) || isVouchedFor(request, server))) return;
      throw new ServiceError("misdirected_host", {
        detail: `If ${JSON.stringify(host)} is this server, add it to TODO_ALLOWED_HOSTS.`,
      });
    },
    /** Throws `cross_site_write` if a page of another site sends the request, unless its origin is allowed (Fetch Metadata). */
    requireSameSite: (request: Request): void => {
      if (request.headers.get("sec-fetch-site") !== "cross-site") return;
      if (allowedOrigin(request) === undefined) throw crossSite(LIST_ORIGIN);
    },
    /**
     * Throws `cross_site_write` if a page of another origin sends the request, unless that origin is allowed. Works without
     * Fetch Metadata, as the Model Context Protocol demands (Streamable HTTP, security warning).
     */
    requireKnownOrigin: (request: Request): void => {
      const { headers, url } = request;
      const origin = headers.get("origin");
      const isOther = origin === null || !isOwn(origin, headers.get("host"), url);
      if (origin === null && headers.get("sec-fetch-site") !== "cross-site") return;
      if (isOther && allowedOrigin(request) === undefined) throw crossSite(LIST_ORIGIN);
    },
    /**
     * Throws `cross_site_write` if a page of another origin sends the request, unless that origin is listed by name.
     * Browsers attach Basic credentials automatically, also to requests from a page on another loopback port.
     */
    requireSameOrigin: (request: Request): void => {
      const origin = request.headers.get("origin");
      if ((origin !== null && origins.has(origin)) || isOwnPage(request)) return;
      throw crossSite(`${LIST_ORIGIN} This also applies to loopback origins.`);
    },
  };
}

const LIST_ORIGIN = "To allow writes from this page, list its origin in TODO_CORS_ORIGINS.";

const crossSite = (detail: string) => new ServiceError("cross_site_write", { detail });

/** Throws `cross_site_write` unless `isOwnPage` is true. */
export function requireOwnPage(request: Request): void {
  if (!isOwnPage(request)) throw crossSite("Only the service's own pages may do this.");
}

/** Returns whether no page of another origin, not even a listed one, sends the request (Fetch Metadata, `Origin`). */
export function isOwnPage({ headers, url }: Request): boolean {
  const site = headers.get("sec-fetch-site");
  if (site !== null && site !== "same-origin" && site !== "none") return false;
  const origin = headers.get("origin");
  return origin === null || isOwn(origin, headers.get("host"), url);
}

/**
 * Returns whether an origin has this host. If this server terminates TLS, the scheme must be https. Otherwise any scheme
 * matches, because a proxy may terminate TLS.
 */
function isOwn(origin: string, host: string | null, url: string): boolean {
  const own = url.startsWith("https:") ? /^https:\/\/(.+)$/ : /^https?:\/\/(.+)$/;
  const authority = own.exec(origin)?.[1];
  return host !== null && authority !== undefined && spellings(authority).includes(host.toLowerCase());
}

/** Returns a host with a port, or one without in all its forms: some proxies send the default port, too (RFC 9110 §4.2.3). */
function spellings(host: string): readonly string[] {
  const lower = host.toLowerCase();
  return /:\d+$/.test(lower) ? [lower] : [lower, `${lower}:80`, `${lower}:443`];
}

/** Returns whether a request is a CORS preflight (Fetch §3.2.2). */
export function isPreflight(request: Request): boolean {
  return request.method === "OPTIONS" && request.headers.has("access-control-request-method");
}

/** Returns the response to a preflight of an allowed origin. */
export const preflight = (allow: string): Response =>
  respond(204, {
    "Access-Control-Allow-Methods": allow,
    "Access-Control-Allow-Headers": REQUEST_HEADERS,
    "Access-Control-Max-Age": "600",
    "Cache-Control": "no-store",
  });

/** Adds the CORS headers that let pages of an origin read a response. */
export function allowOrigin(response: Response, origin: string): Response {
  response.headers.set("Access-Control-Allow-Origin", origin);
  response.headers.set("Access-Control-Expose-Headers", EXPOSED_HEADERS);
  return response;
}
