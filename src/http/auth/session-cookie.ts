import { SESSION_LIFETIME_MS } from "../../credential/session.ts";
import { isMintedToken } from "../../credential/token.ts";

/** The prefix makes browsers accept the cookie from this host only, over HTTPS, for every path (RFC 6265bis §4.1.3.2). */
const PREFIX = "__Host-todo=";
const ATTRIBUTES = "Path=/; Secure; HttpOnly; SameSite=Strict";

/**
 * Returns the token in the cookie of a browser; `undefined` without one, if several cookies have its name, or beside
 * `Authorization`.
 */
export function readSessionCookie({ headers }: Request): string | undefined {
  if (headers.has("authorization")) return undefined;
  const cookies = headers.get("cookie")?.split("; ");
  const [token, ...others] = cookies?.filter((cookie) => cookie.startsWith(PREFIX)) ?? [];
  if (token === undefined || others.length > 0) return undefined;
  const value = token.slice(PREFIX.length);
  return isMintedToken(value) ? value : undefined;
}

/** Returns the value of `Set-Cookie` that stores a token. */
export const setSessionCookie = (token: string): string =>
  `${PREFIX}${token}; ${ATTRIBUTES}; Max-Age=${SESSION_LIFETIME_MS / 1000}`;

/** The value of `Set-Cookie` that deletes the cookie. */
export const CLEARED_COOKIE = `${PREFIX}; ${ATTRIBUTES}; Max-Age=0`;
