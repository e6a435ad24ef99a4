import { ServiceError } from "../error.ts";
import type { TodoStore } from "../todo.ts";
import { type Access, type Credentials, DEFAULT_ACCESS, NO_CREDENTIALS } from "./auth/authenticator.ts";
import { createGuards } from "./auth/guards.ts";
import { createWriteGuard } from "./auth/private.ts";
import { createRevocationCheck } from "./auth/revocation.ts";
import type { Context } from "./context.ts";
import { createEventHandlers } from "./handlers/events.ts";
import { createMcpHandler, type McpEndpoint } from "./handlers/mcp.ts";
import { errorPage } from "./handlers/pages.ts";
import { BodyReader } from "./json-body.ts";
import { DEFAULT_LIMITS, type Limits } from "./limits.ts";
import { createMiddleware } from "./middleware.ts";
import { instrumentHandler, instrumentStore, type Observer } from "./observability/instrumentation.ts";
import { type Log, NOOP_LOG } from "./observability/log.ts";
import { LogLimiter } from "./observability/log-limiter.ts";
import { networkPrefix } from "./policy/address.ts";
import { createConnectionInfoReader, DEFAULT_NETWORK, type Network } from "./policy/connection.ts";
import { createOriginPolicy } from "./policy/origin.ts";
import { text } from "./response.ts";
import { type Handler, notFoundRoute, privateRoute, type Route } from "./route.ts";
import { routeTable } from "./route-table.ts";
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
  const access = withDefaults(DEFAULT_ACCESS, options.access);
  const network = withDefaults(DEFAULT_NETWORK, options.network);
  const limits = withDefaults(DEFAULT_LIMITS, options.limits);
  const getConnectionInfo = createConnectionInfoReader(network);
  const limiter = new LogLimiter();
  const logUnfinished = limiter.topic((fields) => log.warn(fields, "too many unfinished bodies"));
  const context: Context = {
    store: observer ? instrumentStore(options.store, observer, monotonicNow) : options.store,
    credentials: withDefaults(NO_CREDENTIALS, options.credentials),
    access,
    limits,
    bodies: new BodyReader({
      limits,
      getNetwork: (request, server) => networkPrefix(getConnectionInfo(request, server).address),
      onReject: (sender) => logUnfinished(sender, { network: sender }),
    }),
    origins: createOriginPolicy(network, getConnectionInfo),
    getConnectionInfo,
    log,
    limiter,
    monotonicNow,
    now,
  };
  const guards = createGuards(context, (surface) => observer?.surface(surface) ?? (() => {}));
  const guardWrites = createWriteGuard(context);
  const revocation = createRevocationCheck(context);
  const events = createEventHandlers(context, revocation);
  observer?.subscribers(events.count);
  const middleware = createMiddleware({ ...context, accessLog, anyHostPaths: HEALTH_PATHS, errorPage });

  let isDraining = false;
  /** Says that the store answers, its writes do not fail, and the service is not draining. */
  const ready: Handler = async () => {
    if (isDraining) throw new ServiceError("stopping");
    await context.store.position();
    await context.store.checkWrites?.();
    return text("ready\n");
  };
  // A tool's request passes all checks, so its handler is looked up when all routes exist.
  const handlerOf = (path: string): Handler => routes[path] ?? notFoundRoute.handler;
  const table = routeTable(context, guards, {
    events,
    ready,
    mcp: mcp && createMcpHandler(mcp, context, handlerOf),
  });
  const routes: Readonly<Record<string, Handler>> = Object.fromEntries(
    Object.entries(table).map(([path, unprotected]) => {
      const route = access.privateMode ? protect(path, unprotected) : unprotected;
      const served = simulation === undefined ? route : simulate(path, route, simulation);
      const handler = middleware.apply(path, served);
      return [path, observer ? instrumentHandler(handler, observer.route(path), monotonicNow) : handler];
    }),
  );
  return {
    routes,
    drain: () => {
      isDraining = true;
      middleware.drain();
    },
    close: () => {
      events.end();
      revocation.stop();
      limiter.flush();
    },
  };

  /** Returns the route behind the guard of private mode. */
  function protect(path: string, route: Route): Route {
    const { inPrivateMode } = route;
    if (inPrivateMode === "open") return route;
    // The requests of the tools are checked and logged as writes themselves, so an identity that only reads may POST at /mcp.
    const guarded = inPrivateMode === "assistants" ? route : guardWrites(path, route);
    return privateRoute(guards.private[inPrivateMode], guarded);
  }
}

/** Returns the options with the defaults of those that are absent or undefined. */
function withDefaults<Group extends object>(defaults: Group, some: Some<Group> = {}): Group {
  const all = { ...defaults };
  for (const name in defaults) all[name] = some[name] ?? defaults[name];
  return all;
}

/** The paths that load balancers request, with any `Host`. */
const HEALTH_PATHS: ReadonlySet<string> = new Set(["/livez", "/readyz"]);
