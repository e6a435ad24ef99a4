import { Failure } from "../failure.ts";
import { reply } from "./reply.ts";

const LOOPBACK_HOST = /^(?:localhost|127(?:\.\d{1,3}){3}|\[::1\])(?::\d{1,5})?$/i;
const LOOPBACK_ORIGIN = /^https?:\/\/(?:localhost|127(?:\.\d{1,3}){3}|\[::1\])(?::\d{1,5})?$/;
const PREFLIGHT_SECONDS = "600";
const EXPOSED = "ETag, Link, Location, Retry-After, X-Request-Id";

export interface OriginPolicy {
  /** Refuses a Host that is not ours (DNS rebinding): throws `misdirected_host`. */
  readonly requireHost: (request: Request) => void;
  /** Whether any origin at all is listed. */
  readonly listsAny: boolean;
  /** Whether pages of this origin may read and write here. */
  readonly lists: (origin: string) => boolean;
  /** Refuses what a browser says comes from a page of another site, unless its origin is listed (Fetch Metadata). */
  readonly requireSameSite: (request: Request) => void;
  /**
   * Refuses what comes from a page that is not this server's own, unless its origin is listed by name: browsers
   * send Basic credentials along unasked, also for a page on another port of loopback.
   */
  readonly requireSameOrigin: (request: Request) => void;
}

export interface OriginOptions {
  /** Whether the server listens on loopback only. */
  readonly onLoopback: boolean;
  /** Hosts it answers for, besides loopback's names; with none, and off loopback, any. */
  readonly allowedHosts: readonly string[];
  /** Origins that may use it from a browser, besides loopback's own when it is on loopback. */
  readonly corsOrigins: readonly string[];
}

export function originPolicy({ onLoopback, allowedHosts, corsOrigins }: OriginOptions): OriginPolicy {
  const hosts = new Set(allowedHosts.map((host) => host.toLowerCase()));
  const origins = new Set(corsOrigins);
  const checksHost = onLoopback || hosts.size > 0;
  const lists = (origin: string): boolean =>
    origins.has(origin) || (onLoopback && LOOPBACK_ORIGIN.test(origin));
  return {
    listsAny: onLoopback || origins.size > 0,
    lists,
    requireHost: (request) => {
      if (!checksHost) return;
      const host = request.headers.get("host");
      // Only what is no browser leaves Host out.
      if (host === null || LOOPBACK_HOST.test(host) || hosts.has(host.toLowerCase())) return;
      throw new Failure("misdirected_host", {
        detail: `Add ${JSON.stringify(host)} to TODO_ALLOWED_HOSTS if it is this server's.`,
      });
    },
    requireSameSite: ({ headers }) => {
      if (headers.get("sec-fetch-site") !== "cross-site") return;
      const origin = headers.get("origin");
      if (origin !== null && lists(origin)) return;
      throw new Failure("cross_site_write", {
        detail: "List the page's origin in TODO_CORS_ORIGINS to let it write.",
      });
    },
    requireSameOrigin: ({ headers, url }) => {
      const origin = headers.get("origin");
      if (origin !== null && origins.has(origin)) return;
      const site = headers.get("sec-fetch-site");
      const isOwnPage = origin === null || isOwn(origin, headers.get("host"), url);
      if (isOwnPage && (site === null || site === "same-origin" || site === "none")) return;
      throw new Failure("cross_site_write", {
        detail:
          "List the page's origin in TODO_CORS_ORIGINS to let it write; loopback's are not listed for this.",
      });
    },
  };
}

/**
 * Whether an origin is of this host. Over TLS of ours it is https alone; else of any scheme, for behind a proxy that
 * ends TLS it is not the one spoken here.
 */
function isOwn(origin: string, host: string | null, url: string): boolean {
  const own = url.startsWith("https:") ? /^https:\/\/(.+)$/ : /^https?:\/\/(.+)$/;
  return host !== null && own.exec(origin)?.[1] === host.toLowerCase();
}

/** Whether a request is a CORS preflight (Fetch §3.2.2). */
export function isPreflight(request: Request): boolean {
  return request.method === "OPTIONS" && request.headers.has("access-control-request-method");
}

/** The answer to a listed origin's preflight. */
export function preflight(allow: string): Response {
  return reply(204, {
    "Access-Control-Allow-Methods": allow,
    "Access-Control-Allow-Headers":
      "Authorization, Content-Type, Idempotency-Key, If-None-Match, Last-Event-ID, traceparent, tracestate",
    "Access-Control-Max-Age": PREFLIGHT_SECONDS,
  });
}

/** Lets pages of an origin read a response. */
export function share(response: Response, origin: string): Response {
  response.headers.set("Access-Control-Allow-Origin", origin);
  response.headers.set("Access-Control-Expose-Headers", EXPOSED);
  return response;
}
