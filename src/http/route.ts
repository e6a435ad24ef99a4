import { type Awaitable, chain } from "../awaitable.ts";
import type { Identity } from "../credential/client.ts";
import { ServiceError } from "../error.ts";
import { respond } from "./response.ts";

/** A request with the path parameters of its route, each percent-decoded once. */
export type RoutedRequest = Request & {
  readonly params: Readonly<Record<string, string | undefined>>;
  /** The `X-Request-Id` of the response, if it has one. */
  id?: string;
};

/**
 * The time limit for receiving a whole request, and for the next request on a kept-alive connection to begin. The
 * runtime adds up to 2 seconds.
 */
export const IDLE_SECONDS = 10;

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
  /**
   * Who may send requests. `guarded`: authenticated senders; no cache may store a response, errors included. `private`:
   * authenticated senders; a private cache may store what the handler declares cacheable.
   */
  readonly access: "public" | "guarded" | "private";
  readonly handler: Handler;
}

/** The methods and the handler of a path that needs an identity. */
export interface GuardedRoute {
  readonly allow: string;
  readonly handler: GuardedHandler;
}

type Methods<MethodHandler> = Partial<Readonly<Record<Method, MethodHandler>>>;

/** Returns a route that needs no credentials. */
export const publicRoute = (methods: Methods<Handler>): Route => ({
  ...dispatcher(methods),
  access: "public",
});

/** Returns a route that authenticates every request first, whatever its method. Without methods, it then responds with 404. */
export function guardedRoute(guard: Guard, methods?: Methods<GuardedHandler>): Route {
  const { allow, handler } = methods === undefined ? notFoundRoute : dispatcher(methods);
  return { allow, access: "guarded", handler: behind(guard, handler) };
}

/** Returns a route behind a guard, which runs before the method is considered. */
export const privateRoute = (guard: Guard, { allow, handler }: GuardedRoute): Route => ({
  allow,
  access: "private",
  handler: behind(guard, handler),
});

const behind =
  (guard: Guard, handler: GuardedHandler): Handler =>
  (request, server) =>
    chain(guard(request, server), (identity) => handler(request, server, identity));

/** Handles unknown paths with 404. */
export const notFoundRoute = {
  allow: "GET, HEAD, POST, PATCH, DELETE, OPTIONS",
  access: "public",
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
  handlers.set("OPTIONS", () => respond(204, { Allow: allow }));

  const handler: HandlerFor<Sender> = (request, server, ...sender) => {
    const methodHandler = handlers.get(request.method);
    if (methodHandler === undefined)
      throw new ServiceError("method_not_allowed", { headers: { Allow: allow } });
    return methodHandler(request, server, ...sender);
  };
  return { allow, handler };
}

/**
 * Returns the value of a parameter in a query. Throws `invalid_query` for a bad or repeated value.
 * @param parse returns `undefined` for a bad value
 */
export function readParameter<T>(
  query: URLSearchParams,
  name: string,
  parse: (value: string) => T | undefined,
  expected: string,
): T | undefined {
  const values = query.getAll(name);
  if (values.length === 0) return undefined;
  const value = values.length === 1 ? parse(values[0] ?? "") : undefined;
  if (value !== undefined) return value;
  throw new ServiceError("invalid_query", { detail: `Send ${name} once, as ${expected}.` });
}

/** Returns whether a method only reads (RFC 9110 §9.2.1). The server has no TRACE. */
export const isSafeMethod = ({ method }: Request): boolean =>
  method === "GET" || method === "HEAD" || method === "OPTIONS";

/** Returns the routes with a function that changes the headers of each response. */
export function withHeaders(
  routes: Readonly<Record<string, Handler>>,
  change: (headers: Headers) => void,
): Record<string, Handler> {
  const changed = (response: Response): Response => {
    change(response.headers);
    return response;
  };
  const wrap =
    (handler: Handler): Handler =>
    (request, server) => {
      const response = handler(request, server);
      // Not chain(), which is slower here.
      return response instanceof Promise ? response.then(changed) : changed(response);
    };
  return Object.fromEntries(Object.entries(routes).map(([path, handler]) => [path, wrap(handler)]));
}
