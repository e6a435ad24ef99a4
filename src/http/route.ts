import { chain } from "../awaitable.ts";
import { ServiceError } from "../error.ts";
import type { Awaitable } from "../todo.ts";
import { respond } from "./response.ts";

/** A request with the path parameters of its route, each percent-decoded once. */
export type RoutedRequest = Request & { readonly params: Readonly<Record<string, string | undefined>> };

/** The HTTP server that received a request, such as the one that `Bun.serve` returns. */
export interface HttpServer {
  /** `https` if this server terminates TLS. */
  readonly protocol: "http" | "https" | null;
  /** Returns the IP address of the other end of the connection, or `null` if it has closed. */
  requestIP(request: Request): { readonly address: string } | null;
  /** Sets the idle timeout of the request's connection in seconds. */
  timeout(request: Request, seconds: number): void;
}

/** Returns the response to a request, or throws a ServiceError. */
export type Handler = (request: RoutedRequest, server: HttpServer) => Awaitable<Response>;

/** Returns the response to an authenticated request, or throws a ServiceError. */
export type GuardedHandler<Identity> = (request: RoutedRequest, identity: Identity) => Awaitable<Response>;

/**
 * Authenticates a request and returns the identity, without a promise if the lookup returns none.
 * Throws a ServiceError if it rejects the request.
 */
export type Guard<Identity> = (request: Request, server: HttpServer) => Awaitable<Identity>;

type Method = "GET" | "POST" | "PATCH" | "DELETE";

/** The methods and the handler of one path. */
export interface Route {
  /** The value of the `Allow` header. */
  readonly allow: string;
  /** Whether the route requires authentication. Then no cache may store its responses, errors included. */
  readonly isGuarded: boolean;
  readonly handler: Handler;
}

type MethodHandler<Rest extends readonly unknown[]> = (
  request: RoutedRequest,
  ...rest: Rest
) => Awaitable<Response>;
type Methods<Rest extends readonly unknown[]> = Partial<Readonly<Record<Method, MethodHandler<Rest>>>>;

/** Returns a route that needs no credentials. */
export function publicRoute(methods: Methods<[HttpServer]>): Route {
  const dispatch = dispatcher(methods);
  return { allow: dispatch.allow, isGuarded: false, handler: dispatch.handler };
}

/** Returns a route that authenticates every request first, whatever its method. Without methods, it then responds with 404. */
export function guardedRoute<Identity>(guard: Guard<Identity>, methods?: Methods<[Identity]>): Route {
  const { allow, handler } = methods === undefined ? notFoundRoute : dispatcher(methods);
  return {
    allow,
    isGuarded: true,
    handler: (request, server) => chain(guard(request, server), (identity) => handler(request, identity)),
  };
}

/** Handles unknown paths with 404. */
export const notFoundRoute = {
  allow: "GET, HEAD, POST, PATCH, DELETE, OPTIONS",
  isGuarded: false,
  handler: (): never => {
    throw new ServiceError("route_not_found");
  },
};

/** Selects the handler by method. HEAD uses the handler of GET, because the runtime omits the body. */
function dispatcher<Rest extends readonly unknown[]>(methods: Methods<Rest>) {
  const handlers = new Map<string, MethodHandler<Rest>>(Object.entries(methods));
  const get = handlers.get("GET");
  if (get !== undefined) handlers.set("HEAD", get);
  const allow = [...handlers.keys(), "OPTIONS"].join(", ");
  handlers.set("OPTIONS", () => respond(204, { Allow: allow }));

  const handler: MethodHandler<Rest> = (request, ...rest) => {
    const methodHandler = handlers.get(request.method);
    if (methodHandler === undefined)
      throw new ServiceError("method_not_allowed", { headers: { Allow: allow } });
    return methodHandler(request, ...rest);
  };
  return { allow, handler };
}

/** Returns the routes with a header added to each response. */
export function withHeader(
  routes: Readonly<Record<string, Handler>>,
  name: string,
  value: string,
): Record<string, Handler> {
  const set = (response: Response): Response => {
    response.headers.set(name, value);
    return response;
  };
  return Object.fromEntries(
    Object.entries(routes).map(([path, handler]) => [
      path,
      (request: RoutedRequest, server: HttpServer) => {
        const response = handler(request, server);
        return response instanceof Promise ? response.then(set) : set(response);
      },
    ]),
  );
}
