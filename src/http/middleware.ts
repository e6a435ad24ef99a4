import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { type Awaitable, chain } from "../awaitable.ts";
import { type ErrorCode, ServiceError } from "../error.ts";
import type { Context } from "./context.ts";
import { OVERLOADED } from "./limits.ts";
import { createErrorLog, loggedPath, traceId } from "./observability/log.ts";
import { allowOrigin, isPreflight, type OriginPolicy, preflight } from "./policy/origin.ts";
import { forbidReuse, forbidStoring, problem } from "./response.ts";
import {
  type Handler,
  type HttpServer,
  isSafeMethod,
  notFoundRoute,
  type Route,
  type RoutedRequest,
} from "./route.ts";
import { isUnfinished } from "./unfinished-bodies.ts";

/** Less than the idle timeout of `listen`. */
const SLOW_MS = 5000;
/** Longer than any store or password check takes before it gives up. */
const SLOW_IDLE_SECONDS = 60;

/** The runtime's idle timeout also runs while a handler works, unless the handler has read a body. */
const extendIdleTimeout = (request: Request, server: HttpServer): void =>
  server.timeout(request, SLOW_IDLE_SECONDS);

export interface MiddlewareOptions
  extends Pick<Context, "origins" | "log" | "limiter" | "getConnectionInfo" | "limits" | "monotonicNow"> {
  /** Whether to write one log line per request. */
  readonly accessLog: boolean;
  /** The paths that do not check `Host`. */
  readonly anyHostPaths: ReadonlySet<string>;
  /** Returns the HTML page of an error, or undefined if the client gets JSON. By default, every client gets JSON. */
  readonly errorPage?: (error: ServiceError, request: Request) => Response | undefined;
}

/** Creates the checks of one service that apply to every route: Host, CORS, concurrency limits, error handling and the access log. */
export function createMiddleware(options: MiddlewareOptions) {
  const { origins, accessLog } = options;
  let draining = false;
  /**
   * Makes a response the last one of its connection while draining, and after a chunked body: the runtime reads trailers as
   * a new request and answers it, maybe to another client of a proxy. Runs after the handler, because draining may start meanwhile.
   */
  const closeIfLast: Finish = (response, request) => {
    if (draining || request.headers.has("transfer-encoding")) forbidReuse(response.headers);
    return response;
  };
  const createRejections = createErrorResponses(options, closeIfLast);
  return {
    /** Returns the route's handler with the checks applied. */
    apply: (path: string, route: Route): Handler => {
      const run = createRun(path, options, createRejections(path, route), closeIfLast);
      const handle = withCors(route, run, origins);
      const identified = withId(handle);
      if (accessLog) return withLog(path, identified, options);
      if (route.access === "public") return handle;
      return (request, server) => (isSafeMethod(request) ? handle : identified)(request, server);
    },
    /** Starts draining: every later response carries `Connection: close` (RFC 9112 §9.6). */
    drain: (): void => {
      draining = true;
    },
  };
}

type Finish = (response: Response, request: Request) => Response;

/** Runs a handler, and returns the response to its error. */
type Run = (handler: Handler, request: RoutedRequest, server: HttpServer) => Awaitable<Response>;

/** Returns a handler that gives each request an id, which its response and its log lines have. */
function withId(handle: Handler): Handler {
  return (request, server) => {
    const id = randomUUID();
    request.id = id;
    return chain(handle(request, server), (response) => {
      response.headers.set("X-Request-Id", id);
      return response;
    });
  };
}

/** Returns a handler that logs each request. */
function withLog(
  path: string,
  handle: Handler,
  { log, getConnectionInfo, monotonicNow }: MiddlewareOptions,
): Handler {
  return (request, server) => {
    const started = monotonicNow();
    // Now, because the runtime forgets the address when the client leaves.
    const { address } = getConnectionInfo(request, server);
    return chain(handle(request, server), (response) => {
      const { id, method } = request;
      const { status } = response;
      const ms = Math.round((monotonicNow() - started) * 1000) / 1000;
      const trace = traceId(request);
      log.info({ id, address, method, path: loggedPath(path, request), status, ms, trace }, "request");
      return response;
    });
  };
}

/** Returns the handler of a route that also answers pages of other origins. Without an origin, it allocates no promise. */
function withCors(route: Route, run: Run, { allowedOrigin }: OriginPolicy): Handler {
  return (request, server) => {
    const origin = allowedOrigin(request);
    if (origin === undefined) return run(route.handler, request, server);
    // A preflight carries no credentials, so it must not reveal the methods of a guarded route.
    const handler = isPreflight(request)
      ? () => preflight(route.access === "public" ? route.allow : notFoundRoute.allow)
      : route.handler;
    return chain(run(handler, request, server), (response) => allowOrigin(response, origin));
  };
}

/** Returns the function that runs the handlers of a path: it checks `Host` and the limit of concurrent requests. */
function createRun(
  path: string,
  { origins, limits, anyHostPaths }: MiddlewareOptions,
  { errorResponse, rejectOverloaded }: ErrorResponses,
  finish: Finish,
): Run {
  const active = { reads: 0, writes: 0 };
  const acceptsAnyHost = anyHostPaths.has(path);
  return (handler, request, server) => {
    try {
      if (!acceptsAnyHost) origins.requireHost(request, server);
      const kind = isSafeMethod(request) ? "reads" : "writes";
      if (active[kind] >= limits.maxRequests) return rejectOverloaded(request);
      const response = handler(request, server);
      // A response that is already there does not count as a concurrent request.
      if (!(response instanceof Promise)) return finish(response, request);
      active[kind]++;
      const slowTimer = hasNoBody(request)
        ? setTimeout(extendIdleTimeout, SLOW_MS, request, server)
        : undefined;
      const settle = (): void => {
        active[kind]--;
        clearTimeout(slowTimer);
      };
      return response.then(
        (settled) => {
          settle();
          return finish(settled, request);
        },
        (error) => {
          settle();
          return errorResponse(error, request);
        },
      );
    } catch (error) {
      return errorResponse(error, request);
    }
  };
}

type ErrorResponses = ReturnType<ReturnType<typeof createErrorResponses>>;

/** Returns a function that creates the responses to the errors of a route. It logs those with status 5xx. */
function createErrorResponses({ log, limiter, limits, errorPage }: MiddlewareOptions, finish: Finish) {
  const logError = createErrorLog(log, limiter);
  const logOverload = limiter.topic((fields) => log.warn(fields, "overloaded"));
  return (path: string, { access }: Route) => {
    const errorResponse = (error: unknown, request: RoutedRequest): Response => {
      const serviceError =
        error instanceof ServiceError ? error : new ServiceError("internal_error", { cause: error });
      const response = errorPage?.(serviceError, request) ?? problem(serviceError);
      if (response.status >= 500 && !UNLOGGED_CODES.has(serviceError.code)) {
        const { id, method } = request;
        logError(path, { id, method, trace: traceId(request) }, serviceError);
      }
      if (isUnfinished(error)) forbidReuse(response.headers);
      return finish(access === "guarded" ? forbidStoring(response) : response, request);
    };
    const rejectOverloaded = async (request: RoutedRequest): Promise<Response> => {
      logOverload(path, { route: path });
      await sleep(limits.overloadDelayMs);
      return errorResponse(OVERLOADED, request);
    };
    return { errorResponse, rejectOverloaded };
  };
}

/** Errors with status 5xx that are expected, so they are not logged as failed requests. */
const UNLOGGED_CODES: ReadonlySet<ErrorCode> = new Set(["overloaded", "stopping"]);

const hasNoBody = (request: Request): boolean => isSafeMethod(request) || request.method === "DELETE";
