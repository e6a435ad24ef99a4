/** The reference server in private mode. The kit's tests check it unchanged and with one fault at a time. */
import { createHash } from "node:crypto";
import {
  clientName,
  handleRequest,
  type ParsedRequest,
  problem,
  type State,
  token,
  user,
} from "./reference-server.ts";

/** A token that may only read. */
export const readToken = "Reference-Read-Token-1";
/** The origin whose pages may use the API. */
export const listedOrigin = "https://app.example";

export interface Identity {
  readonly isBasic: boolean;
  readonly mayWrite: boolean;
}

const ownGuard = /^\/(api\/whoami|admin)(\/|$)/;

/** The steps of a request. A fault replaces some of them. */
export const steps = {
  /** Returns whether a request needs no credentials. */
  isOpen: ({ method, path, headers }: ParsedRequest): boolean => {
    const isPreflight = method === "OPTIONS" && headers.has("access-control-request-method");
    return ["/livez", "/readyz"].includes(path) || (isPreflight && headers.get("origin") === listedOrigin);
  },

  /** Returns the response to a request that needs no credentials. */
  handleOpen: ({ method }: ParsedRequest): Response =>
    method === "OPTIONS"
      ? new Response(null, { status: 204, headers: { "access-control-allow-origin": listedOrigin } })
      : new Response("ok"),

  /** Returns who sent a request, or undefined without valid credentials. */
  identify: ({ authorization }: ParsedRequest): Identity | undefined => {
    const presented = parseAuthorization(authorization);
    if (presented === undefined) return undefined;
    const { scheme, name, secret } = presented;
    const isBasic = scheme === "Basic";
    if (secret === token) return { isBasic, mayWrite: true };
    if (secret === readToken) return { isBasic, mayWrite: false };
    const isUser = isBasic && name === user.name && secret === user.password;
    return isUser ? { isBasic, mayWrite: true } : undefined;
  },

  /** Returns the value of WWW-Authenticate for a request without valid credentials. */
  challenge: ({ headers }: ParsedRequest): string => {
    const mode = headers.get("sec-fetch-mode");
    const bearer = 'Bearer realm="todo"';
    return mode === null || mode === "navigate" ? `Basic realm="todo", ${bearer}` : bearer;
  },

  /** Returns whether a write comes from the server's own origin, or from a program. */
  isOwnOrigin: ({ headers }: ParsedRequest): boolean => {
    const origin = headers.get("origin");
    const site = headers.get("sec-fetch-site") ?? "none";
    const isOwn = origin === null || origin === `http://${headers.get("host")}`;
    return isOwn && ["same-origin", "none"].includes(site);
  },

  /** Returns the response to an authenticated request. */
  handle: (request: ParsedRequest, state: State, _identity: Identity): Response | Promise<Response> =>
    request.path === "/" ? new Response("This is a to-do service.") : handleRequest(request, state),

  /** Returns the response of the routes that have their own guards. */
  handleGuarded: (request: ParsedRequest, state: State): Response => {
    if (request.path === "/api/whoami" && request.authorization === `Bearer ${readToken}`)
      return new Response(`${clientName}-reader`);
    const guardedPath = request.path.startsWith("/admin") ? "/admin/" : "/api/whoami";
    const response = handleRequest({ ...request, path: guardedPath }, state);
    return response.ok && request.path !== guardedPath ? problem(404) : response;
  },
};

export type Steps = typeof steps;

/** Returns the reference server in private mode, with some steps replaced. */
export function privateServer(changed: Partial<Steps> = {}) {
  const { isOpen, handleOpen, identify, challenge, isOwnOrigin, handle, handleGuarded } = {
    ...steps,
    ...changed,
  };
  return async (request: ParsedRequest, state: State): Promise<Response> => {
    if (isOpen(request)) return handleOpen(request);
    if (ownGuard.test(request.path)) return handleGuarded(request, state);
    const identity = identify(request);
    if (identity === undefined)
      return withHeaders(problem(401), { "www-authenticate": challenge(request), vary: "Sec-Fetch-Mode" });
    const isWrite = !["GET", "HEAD", "OPTIONS"].includes(request.method);
    if (isWrite && !identity.mayWrite)
      return withHeaders(problem(403), {
        "www-authenticate": 'Bearer realm="todo", error="insufficient_scope", scope="write"',
      });
    if (isWrite && identity.isBasic && !isOwnOrigin(request)) return problem(403);
    const caching = { "cache-control": "private, no-cache", vary: "Authorization" };
    return withEtag(request, withHeaders(await handle(request, state, identity), caching));
  };
}

/** Parses the token, or the user name and the password. */
export function parseAuthorization(
  authorization: string,
): { scheme: string; name: string; secret: string } | undefined {
  const [scheme = "", credential = "", ...rest] = authorization.split(" ");
  if (rest.length > 0) return undefined;
  if (scheme === "Bearer") return { scheme, name: "", secret: credential };
  const text = Buffer.from(credential, "base64").toString();
  const colon = text.indexOf(":");
  if (scheme !== "Basic" || colon === -1) return undefined;
  return { scheme, name: text.slice(0, colon), secret: text.slice(colon + 1) };
}

export function withHeaders(response: Response, headers: Readonly<Record<string, string>>): Response {
  for (const [name, value] of Object.entries(headers)) response.headers.set(name, value);
  return response;
}

/** Adds an ETag to a list, and returns 304 if the client has this list. */
async function withEtag({ method, path, headers }: ParsedRequest, response: Response): Promise<Response> {
  if (!["GET", "HEAD"].includes(method) || path !== "/api/todos" || !response.ok) return response;
  const text = await response.text();
  const etag = `"${createHash("sha256").update(text).digest("base64url")}"`;
  const isKnown = ["*", etag].includes(headers.get("if-none-match") ?? "");
  const answer = isKnown ? new Response(null, { status: 304 }) : new Response(text);
  return withHeaders(answer, { ...Object.fromEntries(response.headers), etag });
}
