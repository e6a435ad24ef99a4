import contract from "../../openapi.json" with { type: "json" };
import type { LookupClient } from "../credential/client.ts";
import type { KeyStore } from "../credential/key.ts";
import { isMintedToken } from "../credential/token.ts";
import type { CheckUser } from "../credential/user.ts";
import type { TodoStore } from "../todo.ts";
import { basicGuard } from "./auth/basic.ts";
import { bearerGuard } from "./auth/bearer.ts";
import { LoginThrottle } from "./auth/login-throttle.ts";
import { createWriteCheck, privateGuard } from "./auth/private.ts";
import { createWriteLog } from "./auth/write-log.ts";
import { BODY_TIMEOUT_MS, BodyReader } from "./body.ts";
import { greet, redirectToAdmin } from "./handlers/admin.ts";
import { createEventHandlers } from "./handlers/events.ts";
import { createHealthHandlers } from "./handlers/health.ts";
import { createKeyHandlers } from "./handlers/keys.ts";
import { createMcpHandler, MCP_REQUEST_HEADERS, type McpEndpoint } from "./handlers/mcp.ts";
import {
  asset,
  compressedJson,
  docsPage,
  errorPage,
  favicon,
  prefersHtml,
  privateTodosPage,
  serviceWorker,
  serviceWorkerRemoval,
  todosPage,
} from "./handlers/pages.ts";
import { RevocationCheck } from "./handlers/revocation.ts";
import { createTodoHandlers } from "./handlers/todos.ts";
import { whoami } from "./handlers/whoami.ts";
import { createMiddleware, OVERLOAD_DELAY_MS } from "./middleware.ts";
import { instrument, type Observer } from "./observability/instrumentation.ts";
import { type Log, NOOP_LOG } from "./observability/log.ts";
import { LogLimiter } from "./observability/log-limiter.ts";
import { createRejectionLog } from "./observability/rejection-log.ts";
import { createConnectionInfoReader } from "./policy/connection.ts";
import { networkPrefix } from "./policy/network.ts";
import { createOriginPolicy } from "./policy/origin.ts";
import { respond } from "./response.ts";
import { guardedRoute, type Handler, notFoundRoute, privateRoute, publicRoute, type Route } from "./route.ts";

/** Options of `createService`. Only `store` is required. */
export interface ServiceOptions {
  /** The to-dos, for example `openMemory()` of `todo-service/memory`. */
  readonly store: TodoStore;
  /** The API keys that `/admin/keys` manages. Without it, that path responds with 404. */
  readonly keys?: KeyStore;
  /** Returns the client of a bearer token. By default, every token is rejected. */
  readonly lookupClient?: LookupClient;
  /** Returns whether a user and a password match. By default, every password is rejected. */
  readonly checkUser?: CheckUser;
  /**
   * Whether every path needs credentials, except `/livez`, `/readyz` and preflights of `corsOrigins`; false by default.
   * Clients and users are accepted; below `/admin`, only users.
   */
  readonly privateMode?: boolean;
  /**
   * Returns the stored entry of a user, such as a password hash, or `undefined`. In private mode, a user's event streams end
   * when the entry changes. By default, they do not end.
   */
  readonly userEntry?: (user: string) => string | undefined;
  /** The Basic realm in visible ASCII; `todo admin` by default. */
  readonly realm?: string;
  /** Whether to accept passwords, and in private mode tokens, over plain HTTP from other machines; false by default. */
  readonly allowBasicOverHttp?: boolean;
  /** IP addresses and CIDR blocks of proxies whose forwarding headers are used; none by default. */
  readonly trustedProxies?: readonly string[];
  /** Consecutive wrong passwords per network and user before a 429; 100 by default, 0 for no limit. */
  readonly basicFailures?: number;
  /** Whether to accept only loopback's values of `Host`, for a server on a loopback address; false by default. */
  readonly onLoopback?: boolean;
  /**
   * Accepted values of `Host`, besides loopback's. By default, and unless `onLoopback` is true, these are accepted, too:
   * addresses, names of local networks, and every host over HTTPS, which this server or a trusted proxy terminates. `/livez`
   * and `/readyz` accept every host.
   */
  readonly allowedHosts?: readonly string[];
  /** Origins whose pages may use the API (CORS), besides pages of loopback that request a loopback host; none by default. */
  readonly corsOrigins?: readonly string[];
  /** The logger, for example pino's; by default, nothing is logged. */
  readonly log?: Log;
  /** Whether to write one log line per request; false by default. */
  readonly accessLog?: boolean;
  /** Receives measurements, for example for metrics; by default, nothing is measured. */
  readonly observer?: Observer;
  /** Maximum concurrent requests per path, counted separately for reads and writes; 5,000 by default. */
  readonly maxRequests?: number;
  /** Milliseconds before the response to a request beyond `maxRequests`; 1,000 by default. */
  readonly overloadDelayMs?: number;
  /** Milliseconds in which a request's body must arrive; 10,000 by default. */
  readonly bodyTimeoutMs?: number;
  /** Maximum open event streams; 1,000 by default. */
  readonly maxSubscribers?: number;
  /** Maximum open event streams of one network, except loopback; a quarter of `maxSubscribers` by default. */
  readonly maxSubscribersPerNetwork?: number;
  /** Serves assistants at `/mcp`: `createMcpEndpoint` of `todo-service/mcp`. Without it, that path responds with 404. */
  readonly mcp?: McpEndpoint;
  /** Milliseconds between two heartbeats of an event stream; 15,000 by default. */
  readonly heartbeatMs?: number;
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

/** Default values of `ServiceOptions`; the command line shows them in its help. */
export const SERVICE_DEFAULTS = {
  realm: "todo admin",
  basicFailures: 100,
  maxRequests: 5000,
  maxSubscribers: 1000,
} as const;

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
 * const listener = listen(createService({ store, lookupClient }), { host: "127.0.0.1", port: 8080 });
 * console.log(`Listening on ${listener.url}`);
 * ```
 */
export function createService(options: ServiceOptions): Service {
  const { keys, mcp, observer, log = NOOP_LOG, realm = SERVICE_DEFAULTS.realm } = options;
  const { monotonicNow = () => performance.now(), now = Date.now } = options;
  const { allowBasicOverHttp = false, accessLog = false, privateMode = false } = options;
  const { basicFailures = SERVICE_DEFAULTS.basicFailures } = options;
  const { maxRequests = SERVICE_DEFAULTS.maxRequests, overloadDelayMs = OVERLOAD_DELAY_MS } = options;
  const { bodyTimeoutMs = BODY_TIMEOUT_MS } = options;
  const { maxSubscribers = SERVICE_DEFAULTS.maxSubscribers, heartbeatMs = 15_000 } = options;
  const { maxSubscribersPerNetwork: maxPerNetwork = Math.ceil(maxSubscribers / 4) } = options;
  const { onLoopback = false, allowedHosts = [], corsOrigins = [] } = options;
  const { trustedProxies = [] } = options;
  const { lookupClient = () => undefined, checkUser = () => false, userEntry = () => undefined } = options;

  const instrumentation = instrument(observer, monotonicNow);
  const store = instrumentation.store(options.store);
  const getConnectionInfo = createConnectionInfoReader(trustedProxies);
  const origins = createOriginPolicy({ onLoopback, allowedHosts, corsOrigins, getConnectionInfo });
  const limiter = new LogLimiter();
  const middleware = createMiddleware({
    origins,
    log,
    limiter,
    accessLog,
    maxRequests,
    overloadDelayMs,
    monotonicNow,
    ...(mcp !== undefined && { requestHeaders: MCP_REQUEST_HEADERS }),
    anyHostPaths: HEALTH_PATHS,
    errorPage,
  });
  const logUnfinished = limiter.topic((fields) => log.warn(fields, "too many unfinished bodies"));
  const bodies = new BodyReader({
    networkOf: (request, server) => networkPrefix(getConnectionInfo(request, server).address),
    timeoutMs: bodyTimeoutMs,
    // A half, so that requests without a complete body never reach the limit of concurrent requests.
    maxUnfinished: Math.ceil(maxRequests / 2),
    onReject: (network) => logUnfinished(network, { network }),
  });
  const todos = createTodoHandlers(store, bodies, log, limiter);
  const revocation = new RevocationCheck({ keys, intervalMs: heartbeatMs, monotonicNow, now, log, limiter });
  const events = createEventHandlers({
    store,
    log,
    limiter,
    getConnectionInfo,
    maxSubscribers,
    maxPerNetwork,
    heartbeatMs,
    revocation,
  });
  let isDraining = false;
  const health = createHealthHandlers(store, () => isDraining);
  const openapi = compressedJson(JSON.stringify(contract));
  const bearer = bearerGuard({
    lookupClient,
    getConnectionInfo,
    logRejection: createRejectionLog("bearer", log, limiter),
    recordOutcome: instrumentation.surface("bearer"),
    isAllowed: (request, server) =>
      !privateMode || allowBasicOverHttp || getConnectionInfo(request, server).isSecure,
  });
  const throttle = new LoginThrottle(basicFailures, monotonicNow);
  const basic = basicGuard({
    checkUser,
    realm,
    throttle,
    getConnectionInfo,
    allowBasicOverHttp,
    // In private mode, browsers also send the token that they use for the list.
    isToken: privateMode ? isMintedToken : () => false,
    logRejection: createRejectionLog("basic", log, limiter),
    recordOutcome: instrumentation.surface("basic"),
  });
  observer?.subscribers(events.count);

  const { requireSameOrigin } = origins;
  const admin = keys && createKeyHandlers({ keys, bodies, requireSameOrigin, log, limiter, now });

  const sameSite =
    (handler: Handler): Handler =>
    (request, server, identity) => {
      origins.requireSameSite(request);
      return handler(request, server, identity);
    };

  const home = privateMode ? privateTodosPage : todosPage;
  const table: Readonly<Record<string, Route>> = {
    "/": publicRoute({ GET: (request) => (prefersHtml(request) ? home(request) : plainTextHome()) }),
    "/docs": publicRoute({ GET: docsPage }),
    "/assets/:name": publicRoute({ GET: asset }),
    "/service-worker.js": publicRoute({ GET: privateMode ? serviceWorkerRemoval : serviceWorker }),
    "/favicon.ico": publicRoute({ GET: favicon }),
    "/livez": publicRoute({ GET: health.live }),
    "/readyz": publicRoute({ GET: health.ready }),
    "/api/openapi.json": publicRoute({ GET: openapi }),
    "/api/todos": publicRoute({ GET: todos.list, POST: sameSite(todos.create) }),
    "/api/todos/:id": publicRoute({
      GET: todos.get,
      PATCH: sameSite(todos.update),
      DELETE: sameSite(todos.delete),
    }),
    "/api/events": publicRoute({ GET: events.follow }),
    "/api/whoami": guardedRoute(bearer, { GET: whoami }),
    "/api/whoami/*": guardedRoute(bearer),
    "/admin": guardedRoute(basic, { GET: redirectToAdmin }),
    "/admin/": guardedRoute(basic, { GET: greet }),
    "/admin/keys": guardedRoute(basic, admin && { GET: admin.list, POST: admin.create }),
    "/admin/keys/:id": guardedRoute(basic, admin && { DELETE: admin.revoke }),
    "/admin/keys/:id/rotate": guardedRoute(basic, admin && { POST: admin.rotate }),
    "/admin/*": guardedRoute(basic),
    ...(mcp !== undefined && {
      [MCP_PATH]: publicRoute({ POST: createMcpHandler(mcp, bodies, origins, handlerOf) }),
    }),
    ...Object.fromEntries([...OAUTH_PATHS].map((path) => [path, notFoundRoute])),
    "/*": notFoundRoute,
  };
  const protect = privateMode ? createProtection() : (_path: string, route: Route) => route;
  const routes: Readonly<Record<string, Handler>> = Object.fromEntries(
    Object.entries(table).map(([path, route]) => [
      path,
      instrumentation.handler(path, middleware.wrap(path, protect(path, route))),
    ]),
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
  function handlerOf(path: string): Handler {
    return routes[path] ?? notFoundRoute.handler;
  }

  /** Returns a function that puts each route behind the guard of private mode, unless it has its own guard or is exempt. */
  function createProtection(): (path: string, route: Route) => Route {
    const options = {
      lookupClient,
      checkUser,
      userEntry,
      throttle,
      getConnectionInfo,
      allowBasicOverHttp,
      logRejection: createRejectionLog("private", log, limiter),
      recordOutcome: instrumentation.surface("private"),
    };
    const guard = privateGuard({ ...options, firstScheme: "Basic" });
    const mcpGuard = privateGuard({ ...options, firstScheme: "Bearer" });
    const withWriteLog = createWriteLog(log, limiter);
    const withWriteCheck = createWriteCheck(requireSameOrigin);
    return (path, route) => {
      if (route.access === "guarded" || HEALTH_PATHS.has(path) || OAUTH_PATHS.has(path)) return route;
      // The requests of the tools are checked and logged as writes themselves, so an identity that only reads may POST here.
      if (path === MCP_PATH) return privateRoute(mcpGuard, route);
      return privateRoute(guard, withWriteLog(path, withWriteCheck(route)));
    };
  }
}

const MCP_PATH = "/mcp";

/** Where assistants look for OAuth. Private mode answers 404 there, because 401 would start a sign-in that cannot succeed. */
const OAUTH_PATHS: ReadonlySet<string> = new Set(["/.well-known/*", "/register"]);

/** The paths that load balancers request, without credentials and with any `Host`. */
const HEALTH_PATHS: ReadonlySet<string> = new Set(["/livez", "/readyz"]);
