import { Failure } from "../failure.ts";
import type { Awaitable } from "../todo.ts";
import { reply } from "./reply.ts";

/** A request as the router hands it over: each path parameter is percent-decoded once. */
export type RoutedRequest = Request & { readonly params: Readonly<Record<string, string | undefined>> };

/** The listener, as far as a handler needs it; `Bun.serve`'s server is one. */
export interface Peer {
  /** `https` where TLS ends here. */
  readonly protocol: "http" | "https" | null;
  requestIP(request: Request): { readonly address: string } | null;
  /** For how many seconds the request's connection may be quiet. */
  timeout(request: Request, seconds: number): void;
}

/** Answers a request, or throws a Failure. */
export type Handler = (request: RoutedRequest, peer: Peer) => Awaitable<Response>;

/** Answers a request of somebody who has passed a guard. */
export type GuardedHandler<Identity> = (request: RoutedRequest, identity: Identity) => Awaitable<Response>;

/** Says who a request comes from, or throws the Failure to answer with. */
export type Guard<Identity> = (request: Request, peer: Peer) => Promise<Identity>;

type Method = "GET" | "POST" | "PATCH" | "DELETE";

/** One path: the methods it allows, and its answer. */
export interface Route {
  readonly allow: string;
  /** Whether it is behind a guard: what it answers is nobody else's, failures included. */
  readonly guarded: boolean;
  readonly handler: Handler;
}

type Answer<Rest extends readonly unknown[]> = (request: RoutedRequest, ...rest: Rest) => Awaitable<Response>;
type Methods<Rest extends readonly unknown[]> = Partial<Readonly<Record<Method, Answer<Rest>>>>;

/** A route that is open to all. */
export function open(methods: Methods<[Peer]>): Route {
  const dispatch = dispatcher(methods);
  return { allow: dispatch.allow, guarded: false, handler: dispatch.handler };
}

/** A route whose every request, of whatever method, passes the guard first. Without methods it is a 404 behind it. */
export function guarded<Identity>(guard: Guard<Identity>, methods?: Methods<[Identity]>): Route {
  const { allow, handler } = methods === undefined ? nowhere : dispatcher(methods);
  return {
    allow,
    guarded: true,
    handler: async (request, peer) => handler(request, await guard(request, peer)),
  };
}

/** Where no route leads. */
export const nowhere = {
  allow: "GET, HEAD, POST, PATCH, DELETE, OPTIONS",
  guarded: false,
  handler: (): never => {
    throw new Failure("route_not_found");
  },
};

/** HEAD goes where GET does: the listener leaves out the body. */
function dispatcher<Rest extends readonly unknown[]>(methods: Methods<Rest>) {
  const answers = new Map<string, Answer<Rest>>(Object.entries(methods));
  const get = answers.get("GET");
  if (get !== undefined) answers.set("HEAD", get);
  const allow = [...answers.keys(), "OPTIONS"].join(", ");
  answers.set("OPTIONS", () => reply(204, { Allow: allow }));

  const handler: Answer<Rest> = (request, ...rest) => {
    const answer = answers.get(request.method);
    if (answer === undefined) throw new Failure("method_not_allowed", { headers: { Allow: allow } });
    return answer(request, ...rest);
  };
  return { allow, handler };
}

/** The same routes, with a header on each of their responses. */
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
      (request: RoutedRequest, peer: Peer) => {
        const response = handler(request, peer);
        return response instanceof Promise ? response.then(set) : set(response);
      },
    ]),
  );
}
