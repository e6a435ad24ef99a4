import contract from "../../openapi.json" with { type: "json" };
import type { KeyStore } from "../credential/key.ts";
import { ServiceError } from "../error.ts";
import type { TodoStore } from "../todo.ts";
import {
  type Access,
  type Credentials,
  createAuthenticator,
  DEFAULT_ACCESS,
  type GuardOptions,
  NO_CREDENTIALS,
} from "./auth/authenticator.ts";
import { basicGuard } from "./auth/basic.ts";
import { bearerGuard } from "./auth/bearer.ts";
import { createLoginThrottle } from "./auth/login-throttle.ts";
import { privateChallenge, privateGuard } from "./auth/private.ts";
import { createWriteGuard } from "./auth/private-writes.ts";
import { createRevocationCheck } from "./auth/revocation.ts";
import { readSessionCookie } from "./auth/session-cookie.ts";
import { BodyReader } from "./body.ts";
import type { Context } from "./context.ts";
import { createEventHandlers } from "./handlers/events.ts";
import { createKeyHandlers } from "./handlers/keys.ts";
import { createMcpHandler, type McpEndpoint } from "./handlers/mcp.ts";
import {
  asset,
  compressedJson,
  docsPage,
  errorPage,
  favicon,
  prefersHtml,
  serviceWorker,
  todosPage,
} from "./handlers/pages.ts";
import { createSessionHandlers } from "./handlers/session.ts";
import { createTodoHandlers } from "./handlers/todos.ts";
import { DEFAULT_LIMITS, type Limits } from "./limits.ts";
import { createMiddleware } from "./middleware.ts";
import { instrument, type Observer, type Surface } from "./observability/instrumentation.ts";
import { type Log, NOOP_LOG } from "./observability/log.ts";
import { LogLimiter } from "./observability/log-limiter.ts";
import { networkPrefix } from "./policy/address.ts";
import { createConnectionInfoReader } from "./policy/connection.ts";
import { createOriginPolicy, DEFAULT_NETWORK, isOwnPage, type Network } from "./policy/origin.ts";
import { respond, text } from "./response.ts";
import {
  type Guard,
  guardedRoute,
  type Handler,
  isSafeMethod,
  notFoundRoute,
  privateRoute,
  publicRoute,
  type Route,
} from "./route.ts";
import { type Simulation, simulate } from "./simulation.ts";

/** Some options of a group; the others have their defaults. */
type Some<Group> = { readonly [Name in keyof Group]?: Group[Name] | undefined };

/** Options of `createService`. Only `store` is required. */
export interface ServiceOptions {
  /** The to-dos, for example `openMemory()` of `todo-service/memory`. */
  readonly store: TodoStore;
  readonly credentials?: Some<Credentials>;
  readonly access?: Some<Access>;
  readonly network?: Some<Network>;
  readonly limits?: Some<Limits>;
  /** The logger, for example pino's; by default, nothing is logged. */
  readonly log?: Log;
  /** Whether to write one log line per request; false by default. */
  readonly accessLog?: boolean;
  /** Receives measurements, for example for metrics; by default, nothing is measured. */
  readonly observer?: Observer | undefined;
  /** Serves assistants at `/mcp`: `createMcpEndpoint` of `todo-service/mcp`. Without it, that path responds with 404. */
  readonly mcp?: McpEndpoint | undefined;
  /** Delays and fails requests below `/api`, to test clients; by default, nothing is simulated. */
  readonly simulation?: Simulation | undefined;
  /** A steady clock in milliseconds; `performance.now` by default. */
  readonly monotonicNow?: () => number;
  /** The wall clock in milliseconds since 1970; `Date.now` by default. */
  readonly now?: () => number;
}

/** A to-do service, as `listen` of `todo-service/listen` takes it. */
export interface Service {
  /** The handler of each path pattern. */
  readonly routes: Readonly<Record<string, Handler>>;
  /** Starts draining: `/readyz` fails, and every later response carries `Connection: close`. */
  readonly drain: () => void;
  /** Ends open event streams and each later one, and writes pending log summaries. Does not close the store. */
  readonly close: () => void;
}

const PLAIN_TEXT_HOME = `This is a to-do service.

GET  /api/todos          the to-dos; POST {"title": "buy milk"} adds one
GET  /api/events         a stream of every change
GET  /api/whoami         your name (needs a bearer token)
GET  /admin/             a greeting (needs a user and a password)
GET  /api/openapi.json   the OpenAPI document; /docs shows it

Open this page in a browser to see the list.
`;

const plainTextHome = (): Response =>
  respond(200, { "Content-Type": "text/plain; charset=utf-8", Vary: "Origin, Accept" }, PLAIN_TEXT_HOME);

/**
 * Creates the to-do service. Open the store before, and close it after the server has stopped.
 * Throws an Error if `realm` or an entry of `trustedProxies` is invalid.
 * @example
 * ```ts
 * import { createService } from "todo-service";
 * import { listen } from "todo-service/listen";
 * import { openMemory } from "todo-service/memory";
 *
 * const store = openMemory();
 * const lookupClient = (token: string) => (token === "s3cret-token" ? { name: "ci" } : undefined);
 * const listener = listen(createService({ store, credentials: { lookupClient } }), { host: "127.0.0.1", port: 8080 });
 * console.log(`Listening on ${listener.url}`);
 * ```
 */
export function createService(options: ServiceOptions): Service {
  const { mcp, observer, log = NOOP_LOG, accessLog = false, simulation } = options;
  const { monotonicNow = () => performance.now(), now = Date.now } = options;
  const credentials = withDefaults(NO_CREDENTIALS, options.credentials);
  const access = withDefaults(DEFAULT_ACCESS, options.access);
  const network = withDefaults(DEFAULT_NETWORK, options.network);
  const limits = withDefaults(DEFAULT_LIMITS, options.limits);
  const { keys } = credentials;
  const { privateMode } = access;

  const instrumentation = instrument(observer, monotonicNow);
  const store = instrumentation.store(options.store);
  const getConnectionInfo = createConnectionInfoReader(network.trustedProxies);
  const origins = createOriginPolicy(network, getConnectionInfo);
  const limiter = new LogLimiter();
  const logUnfinished = limiter.topic((fields) => log.warn(fields, "too many unfinished bodies"));
  const bodies = new BodyReader({
    limits,
    getNetwork: (request, server) => networkPrefix(getConnectionInfo(request, server).address),
    onReject: (sender) => logUnfinished(sender, { network: sender }),
  });
  const context: Context = {
    ...{ store, credentials, access, limits, bodies, origins, getConnectionInfo },
    ...{ log, limiter, monotonicNow, now },
  };
  const middleware = createMiddleware({ ...context, accessLog, anyHostPaths: HEALTH_PATHS, errorPage });
  const todos = createTodoHandlers(context);
  const revocation = createRevocationCheck(context);
  const events = createEventHandlers(context, revocation);
  observer?.subscribers(events.count);
  let isDraining = false;
  /** Says that the store answers, its writes do not fail, and the service is not draining. */
  const ready: Handler = async () => {
    if (isDraining) throw new ServiceError("stopping");
    await store.position();
    await store.checkWrites?.();
    return text("ready\n");
  };
  const openapi = compressedJson(JSON.stringify(contract));
  const throttle = createLoginThrottle(access.basicFailures, monotonicNow);
  const guardOptions = (surface: Surface): GuardOptions => {
    const write = limiter.topic((fields) => log.warn({ surface, ...fields }, "credential refused"));
    return {
      ...context,
      throttle,
      logRejection: (reason, address) => write(`${reason} ${networkPrefix(address)}`, { reason, address }),
      recordOutcome: instrumentation.surface(surface),
    };
  };
  const bearer = bearerGuard(guardOptions("bearer"));
  const basic = basicGuard(guardOptions("basic"));
  const { requireSameOrigin } = origins;
  const privateOptions = guardOptions("private");
  const authenticator = createAuthenticator(privateOptions, privateChallenge("Basic"));
  const programGuard = privateGuard(authenticator);
  const browserGuard = privateGuard(authenticator, (request) =>
    isOwnPage(request) ? readSessionCookie(request) : undefined,
  );
  const assistantGuard = privateGuard(createAuthenticator(privateOptions, privateChallenge("Bearer")));
  const guardWrites = createWriteGuard(context);
  const admin = keys && createKeyHandlers(keys, context);

  const table: Readonly<Record<string, Route>> = {
    "/": publicRoute({ GET: (request) => (prefersHtml(request) ? todosPage(request) : plainTextHome()) }),
    "/docs": publicRoute({ GET: docsPage }),
    "/assets/:name": publicRoute({ GET: asset }),
    "/service-worker.js": publicRoute({ GET: serviceWorker }),
    "/favicon.ico": publicRoute({ GET: favicon }),
    "/livez": publicRoute({ GET: () => text("ok\n") }),
    "/readyz": publicRoute({ GET: ready }),
    "/api/openapi.json": publicRoute({ GET: openapi }),
    "/api/todos": publicRoute({ GET: todos.list, POST: todos.create }),
    "/api/todos/:id": publicRoute({ GET: todos.get, PATCH: todos.update, DELETE: todos.delete }),
    "/api/events": publicRoute({ GET: events.follow }),
    "/api/whoami": guardedRoute(bearer, { GET: (_request, _server, { name }) => text(name) }),
    "/api/whoami/*": guardedRoute(bearer),
    "/admin": guardedRoute(basic, { GET: () => respond(308, { Location: "/admin/" }) }),
    "/admin/": guardedRoute(basic, { GET: (_request, _server, { name }) => text(`Hello, ${name}!`) }),
    "/admin/keys": guardedRoute(basic, admin && { GET: admin.list, POST: admin.create }),
    "/admin/keys/:id": guardedRoute(basic, admin && { PATCH: admin.rename, DELETE: admin.revoke }),
    "/admin/keys/:id/rotate": guardedRoute(basic, admin && { POST: admin.rotate }),
    ...(privateMode && { "/admin/keys/:id/links": guardedRoute(basic, admin && { POST: admin.createLink }) }),
    "/admin/*": guardedRoute(basic),
    ...(mcp !== undefined && {
      [MCP_PATH]: publicRoute({ POST: createMcpHandler(mcp, context, getHandler) }),
    }),
    ...(keys !== undefined && privateMode && createSessionRoutes(keys)),
    "/api": notFoundRoute,
    "/api/*": notFoundRoute,
    "/*": notFoundRoute,
  };
  const routes: Readonly<Record<string, Handler>> = Object.fromEntries(
    Object.entries(table).map(([path, unprotected]) => {
      const route = protect(path, unprotected);
      const served = simulation === undefined ? route : simulate(path, route, simulation);
      return [path, instrumentation.handler(path, middleware.apply(path, served))];
    }),
  );
  const drain = (): void => {
    isDraining = true;
    middleware.drain();
  };
  const close = (): void => {
    events.end();
    revocation.stop();
    limiter.flush();
  };
  return { routes, drain, close };

  /** Returns the handler of a path pattern with all its checks. Call it when all routes exist. */
  function getHandler(path: string): Handler {
    return routes[path] ?? notFoundRoute.handler;
  }

  /** Returns the routes with which a browser signs in and out. Signing in needs no credentials beside the body. */
  function createSessionRoutes(store: KeyStore): Readonly<Record<string, Route>> {
    const session = createSessionHandlers(store, authenticator, context);
    const guard: Guard = (request, server) => {
      if (!isSafeMethod(request)) requireSameOrigin(request);
      return browserGuard(request, server);
    };
    const signedIn = guardedRoute(guard, { GET: session.show, DELETE: session.signOut });
    const signIn = publicRoute({ POST: session.signIn });
    return {
      "/api/session": {
        access: "guarded",
        allow: "GET, HEAD, POST, DELETE, OPTIONS",
        handler: (request, server) =>
          (request.method === "POST" ? signIn : signedIn).handler(request, server),
      },
      "/api/session/link": { ...publicRoute({ POST: session.showLink }), access: "guarded" },
      "/api/session/link/cancel": { ...publicRoute({ POST: session.cancelLink }), access: "guarded" },
      "/api/session/links": guardedRoute(guard, { POST: session.createDeviceLink }),
      "/api/session/devices/:id": guardedRoute(guard, {
        PATCH: session.renameDevice,
        DELETE: session.revokeDevice,
      }),
    };
  }

  /** Returns the route, in private mode behind a guard, unless it has its own one or contains no data. */
  function protect(path: string, route: Route): Route {
    if (!privateMode || route.access === "guarded" || PUBLIC_PATHS.has(path)) return route;
    // The requests of the tools are checked and logged as writes themselves, so an identity that only reads may POST here.
    if (path === MCP_PATH) return privateRoute(assistantGuard, route);
    return privateRoute(COOKIE_PATHS.has(path) ? browserGuard : programGuard, guardWrites(path, route));
  }
}

/** Returns the options with the defaults of those that are absent or undefined. */
function withDefaults<Group extends object>(defaults: Group, some: Some<Group> = {}): Group {
  const all = { ...defaults };
  for (const name in defaults) {
    const value = some[name];
    if (value !== undefined) all[name] = value;
  }
  return all;
}

const MCP_PATH = "/mcp";

/** The paths that load balancers request, without credentials and with any `Host`. */
const HEALTH_PATHS: ReadonlySet<string> = new Set(["/livez", "/readyz"]);

/** The paths at which the cookie of a browser counts, besides those below `/api/session`. */
const COOKIE_PATHS: ReadonlySet<string> = new Set(["/api/todos", "/api/todos/:id", "/api/events"]);

/**
 * The paths that private mode serves to everyone, because they contain no data. Assistants look for OAuth at unknown paths
 * and need a 404 there: a 401 would start a sign-in that cannot succeed.
 */
const PUBLIC_PATHS: ReadonlySet<string> = new Set([
  ...HEALTH_PATHS,
  ...["/", "/docs", "/assets/:name", "/service-worker.js", "/favicon.ico", "/api/openapi.json", "/*"],
]);
