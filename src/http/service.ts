import { randomUUID } from "node:crypto";
import contract from "../../openapi.json" with { type: "json" };
import type { LookupClient } from "../credential/client.ts";
import type { CheckUser } from "../credential/user.ts";
import { Failure } from "../failure.ts";
import type { Awaitable, TodoStore } from "../todo.ts";
import { basicGuard, greet, toAdmin } from "./admin.ts";
import { healthHandlers } from "./health.ts";
import { type Log, SILENT } from "./log.ts";
import { isPreflight, originPolicy, preflight, share } from "./origin.ts";
import { json, problem, text } from "./reply.ts";
import { guarded, type Handler, nowhere, open, type Peer, type Route, type RoutedRequest } from "./route.ts";
import { Throttle } from "./throttle.ts";
import { todoHandlers } from "./todos.ts";
import { bearerGuard, whoami } from "./whoami.ts";

export interface ServiceOptions {
  readonly store: TodoStore;
  /** Who a bearer token belongs to; without it, nobody passes. */
  readonly lookupClient?: LookupClient;
  /** Whether a password is the user's; without it, nobody passes. */
  readonly checkUser?: CheckUser;
  readonly realm?: string;
  /** Take passwords over plain HTTP from other machines too. */
  readonly allowBasicOverHttp?: boolean;
  /** Wrong passwords in a row, per address and user, before a 429; 0 for no limit. */
  readonly basicFailures?: number;
  /** Whether it is reached over loopback only: then it answers for loopback's names and origins alone. */
  readonly onLoopback?: boolean;
  readonly allowedHosts?: readonly string[];
  readonly corsOrigins?: readonly string[];
  readonly log?: Log;
  /** Write a line for each request. */
  readonly accessLog?: boolean;
  /** Milliseconds of a steady clock. */
  readonly now?: () => number;
}

/** The to-do service, to be served: `Bun.serve(service)`, or `listen(service, …)`. */
export interface Service {
  readonly routes: Readonly<Record<string, Handler>>;
  /** From now on it is not ready, and each response closes its connection. */
  readonly drain: () => void;
}

const ABOUT = `This is a to-do service.

GET  /api/todos          the to-dos; POST one: {"title": "buy milk"}
GET  /api/whoami         your name, for a bearer token
GET  /admin/             a greeting, for a user and a password
GET  /api/openapi.json   all of it, as OpenAPI
`;

export function createService(options: ServiceOptions): Service {
  const { store, log = SILENT, realm = "todo admin", now = () => performance.now() } = options;
  const { allowBasicOverHttp = false, basicFailures = 100, accessLog = false } = options;
  const { onLoopback = false, allowedHosts = [], corsOrigins = [] } = options;
  const { lookupClient = () => undefined, checkUser = () => false } = options;

  let draining = false;
  const todos = todoHandlers(store);
  const health = healthHandlers(store, () => draining);
  const openapi = JSON.stringify(contract);
  const bearer = bearerGuard(lookupClient, log);
  const throttle = new Throttle(basicFailures, now);
  const basic = basicGuard({ checkUser, realm, throttle, allowBasicOverHttp, log });
  const origins = originPolicy({ onLoopback, allowedHosts, corsOrigins });

  const sameSite =
    (handler: Handler): Handler =>
    (request, peer) => {
      origins.requireSameSite(request);
      return handler(request, peer);
    };

  const table: Readonly<Record<string, Route>> = {
    "/": open({ GET: () => text(ABOUT) }),
    "/livez": open({ GET: health.live }),
    "/readyz": open({ GET: health.ready }),
    "/api/openapi.json": open({ GET: () => json(openapi) }),
    "/api/todos": open({ GET: todos.list, POST: sameSite(todos.create) }),
    "/api/todos/:id": open({
      GET: todos.get,
      PATCH: sameSite(todos.update),
      DELETE: sameSite(todos.delete),
    }),
    "/api/whoami": guarded(bearer, { GET: whoami }),
    "/api/whoami/*": guarded(bearer),
    "/admin": guarded(basic, { GET: toAdmin }),
    "/admin/": guarded(basic, { GET: greet }),
    "/admin/*": guarded(basic),
    "/*": nowhere,
  };
  const routes = Object.entries(table).map(([path, route]) => [path, frontDoor(path, route)] as const);
  return {
    routes: Object.fromEntries(routes),
    drain: () => {
      draining = true;
    },
  };

  /** What every request passes, whatever its route: the Host, CORS, the single catch, the access log. */
  function frontDoor(path: string, { handler, allow, guarded }: Route): Handler {
    const answer = (request: RoutedRequest, peer: Peer, id: string | undefined): Awaitable<Response> => {
      const origin = request.headers.get("origin");
      if (origin === null && !draining) return run(handler, request, peer, id);
      return decorated(request, peer, id, origin !== null && origins.isListed(origin) ? origin : undefined);
    };
    return accessLog ? logged(path, answer) : (request, peer) => answer(request, peer, undefined);

    async function decorated(request: RoutedRequest, peer: Peer, id: string | undefined, listed?: string) {
      const preflighted = listed !== undefined && isPreflight(request);
      const response = await run(preflighted ? () => preflight(allow) : handler, request, peer, id);
      if (listed !== undefined) share(response, listed);
      if (draining) response.headers.set("Connection", "close");
      return response;
    }

    function run(handler: Handler, request: RoutedRequest, peer: Peer, id: string | undefined) {
      try {
        origins.requireHost(request.headers.get("host"));
        const response = handler(request, peer);
        return response instanceof Promise ? response.catch((error) => failed(error, request, id)) : response;
      } catch (error) {
        return failed(error, request, id);
      }
    }

    function failed(error: unknown, { method }: Request, id: string | undefined): Response {
      const failure = error instanceof Failure ? error : new Failure("internal_error", { cause: error });
      const response = problem(failure);
      if (guarded) response.headers.set("Cache-Control", "no-store");
      if (response.status >= 500) {
        const { code, cause } = failure;
        log.error({ id, method, route: path, code, err: cause ?? failure }, "request failed");
      }
      return response;
    }
  }

  function logged(
    route: string,
    answer: (request: RoutedRequest, peer: Peer, id: string) => Awaitable<Response>,
  ): Handler {
    return async (request, peer) => {
      const started = now();
      const id = randomUUID();
      const response = await answer(request, peer, id);
      response.headers.set("X-Request-Id", id);
      const ms = Math.round((now() - started) * 1000) / 1000;
      log.info({ id, method: request.method, route, status: response.status, ms }, "request");
      return response;
    };
  }
}
