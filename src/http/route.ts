import { type Awaitable, chain } from "../awaitable.ts";
import type { Identity } from "../credential/client.ts";
import { ServiceError } from "../error.ts";
import { forbidStoring, respond, uncachedText } from "./response.ts";

/** A request with the path parameters of its route, each percent-decoded once. */
export type RoutedRequest = Request & {
  readonly params: Readonly<Record<string, string | undefined>>;
  /** The `X-Request-Id` of the response, if it has one. */
  id?: string;
};

/** The HTTP server that received a request, such as the one that `Bun.serve` returns. */
export interface HttpServer {
  /** `https` if this server terminates TLS. */
  readonly protocol: "http" | "https" | null;
  /** Returns the IP address of the other end of the connection, or `null` if it has closed. */
  requestIP(request: Request): { readonly address: string } | null;
  /** Sets the idle timeout of the request's connection in seconds. */
  timeout(request: Request, seconds: number): void;
}

type HandlerFor<Sender extends [identity?: Identity]> = (
  request: RoutedRequest,
  server: HttpServer,
  ...sender: Sender
) => Awaitable<Response>;

/** Returns the response to a request, or throws a ServiceError. Only private mode passes an identity. */
export type Handler = HandlerFor<[identity?: Identity]>;

/** Returns the response to an authenticated request, or throws a ServiceError. */
export type GuardedHandler = HandlerFor<[identity: Identity]>;

/**
 * Authenticates a request and returns the identity, without a promise if the lookup returns none.
 * Throws a ServiceError if it rejects the request.
 */
export type Guard = (request: Request, server: HttpServer) => Awaitable<Identity>;

type Method = "GET" | "POST" | "PATCH" | "DELETE";

/** The methods and the handler of one path. */
export interface Route {
  /** The value of the `Allow` header. */
  readonly allow: string;
  /** Who may send requests. `guarded`: authenticated senders; no cache may store a response, errors included. */
  readonly access: "public" | "guarded";
  /** Who may use the route in private mode, where a guard protects it. `open`: everyone, or it has a guard of its own. */
  readonly inPrivateMode: "open" | "programs" | "browsers" | "assistants";
  readonly handler: Handler;
}

/** The methods and the handler of a path that needs an identity. */
export interface GuardedRoute {
  readonly allow: string;
  readonly handler: GuardedHandler;
}

type Methods<MethodHandler> = Partial<Readonly<Record<Method, MethodHandler>>>;

/** Returns a route that needs no credentials outside of private mode. There, only programs may use it by default. */
export const publicRoute = (
  methods: Methods<Handler>,
  inPrivateMode: Route["inPrivateMode"] = "programs",
): Route => ({ ...dispatcher(methods), access: "public", inPrivateMode });

/** Returns a route that needs no credentials, and whose responses no cache may store. */
export const uncachedRoute = (methods: Methods<Handler>): Route => ({
  ...dispatcher(uncached(methods)),
  access: "guarded",
  inPrivateMode: "open",
});

/**
 * Returns a route that authenticates every request first, whatever its method. Without methods, it then responds with 404.
 * @param unguarded the methods that need no credentials
 */
export function guardedRoute(
  guard: Guard,
  methods?: Methods<GuardedHandler>,
  unguarded: Methods<Handler> = {},
): Route {
  const route = { access: "guarded", inPrivateMode: "open" } as const;
  if (methods === undefined)
    return { ...route, allow: notFoundRoute.allow, handler: behind(guard, notFoundRoute.handler) };
  const { allow, handler } = dispatcher<[identity: Identity]>(uncached({ ...methods, ...unguarded }));
  const open = new Map(Object.entries(uncached(unguarded)));
  const guarded = behind(guard, handler);
  return {
    ...route,
    allow,
    handler: (request, server) => (open.get(request.method) ?? guarded)(request, server),
  };
}

/** Returns a guarded route of a short text about the identity, whose headers are prepared. */
export function guardedText(guard: Guard, describe: (identity: Identity) => string): Route {
  const { allow, handler } = dispatcher<[identity: Identity]>({
    GET: (_request, _server, identity) => uncachedText(describe(identity)),
  });
  return { allow, access: "guarded", inPrivateMode: "open", handler: behind(guard, handler) };
}

/** Returns a route of private mode: behind a guard, which runs before the method is considered. */
export const privateRoute = (guard: Guard, { allow, handler }: GuardedRoute): Route => ({
  allow,
  access: "guarded",
  inPrivateMode: "open",
  handler: behind(guard, (request, server, identity) =>
    chain(handler(request, server, identity), forbidStoring),
  ),
});

const behind =
  (guard: Guard, handler: GuardedHandler): Handler =>
  (request, server) =>
    chain(guard(request, server), (identity) => handler(request, server, identity));

/** Returns the handlers with responses that no cache may store. Errors get the header from the middleware. */
const uncached = <Sender extends [identity?: Identity]>(
  methods: Methods<HandlerFor<Sender>>,
): Methods<HandlerFor<Sender>> =>
  Object.fromEntries(
    Object.entries(methods).map(([method, handler]) => [
      method,
      (request: RoutedRequest, server: HttpServer, ...sender: Sender) =>
        chain(handler(request, server, ...sender), forbidStoring),
    ]),
  );

/** Handles unknown paths with 404. */
export const notFoundRoute = {
  allow: "GET, HEAD, POST, PATCH, DELETE, OPTIONS",
  access: "public",
  inPrivateMode: "programs",
  handler: (): never => {
    throw new ServiceError("route_not_found");
  },
} as const satisfies Route;

/** Selects the handler by method. HEAD uses the handler of GET, because the runtime omits the body. */
function dispatcher<Sender extends [identity?: Identity]>(methods: Methods<HandlerFor<Sender>>) {
  const handlers = new Map<string, HandlerFor<Sender>>(Object.entries(methods));
  const get = handlers.get("GET");
  if (get !== undefined) handlers.set("HEAD", get);
  const allow = [...handlers.keys(), "OPTIONS"].join(", ");
  const acceptPatch = handlers.has("PATCH") ? { "Accept-Patch": "application/json" } : {};
  handlers.set("OPTIONS", () => respond(204, { Allow: allow, "Cache-Control": "no-store", ...acceptPatch }));

  const handler: HandlerFor<Sender> = (request, server, ...sender) => {
    const methodHandler = handlers.get(request.method);
    if (methodHandler === undefined)
      throw new ServiceError("method_not_allowed", { headers: { Allow: allow } });
    return methodHandler(request, server, ...sender);
  };
  return { allow, handler };
}

/** Returns whether a method only reads (RFC 9110 §9.2.1). The server has no TRACE. */
export const isSafeMethod = ({ method }: Request): boolean =>
  method === "GET" || method === "HEAD" || method === "OPTIONS";
