import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { type Awaitable, chain } from "../awaitable.ts";
import { type ErrorCode, ServiceError } from "../error.ts";
import type { Context } from "./context.ts";
import { OVERLOADED } from "./limits.ts";
import { createErrorLog, loggedPath, traceId } from "./observability/log.ts";
import { allowOrigin, isPreflight, preflight } from "./policy/origin.ts";
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
  const { origins, log, limiter, accessLog, limits, monotonicNow, errorPage } = options;
  const { anyHostPaths, getConnectionInfo } = options;
  const logError = createErrorLog(log, limiter);
  const logOverload = limiter.topic((fields) => log.warn(fields, "overloaded"));
  let draining = false;
  return {
    apply,
    /** Starts draining: every later response carries `Connection: close` (RFC 9112 §9.6). */
    drain: (): void => {
      draining = true;
    },
  };

  /** Returns the route's handler with the checks applied. */
  function apply(path: string, route: Route): Handler {
    const active = { reads: 0, writes: 0 };
    const acceptsAnyHost = anyHostPaths.has(path);
    if (accessLog) return logged;
    if (route.access === "public") return handle;
    return (request, server) =>
      isSafeMethod(request) ? handle(request, server) : identified(request, server);

    function logged(request: RoutedRequest, server: HttpServer): Awaitable<Response> {
      const started = monotonicNow();
      // Now, because the runtime forgets the address when the client leaves.
      const { address } = getConnectionInfo(request, server);
      return chain(identified(request, server), (response) => {
        const { id, method } = request;
        const { status } = response;
        const ms = Math.round((monotonicNow() - started) * 1000) / 1000;
        const trace = traceId(request);
        log.info({ id, address, method, path: loggedPath(path, request), status, ms, trace }, "request");
        return response;
      });
    }

    /** Gives the request an id, which its response and its log lines have. */
    function identified(request: RoutedRequest, server: HttpServer): Awaitable<Response> {
      const id = randomUUID();
      request.id = id;
      return chain(handle(request, server), (response) => {
        response.headers.set("X-Request-Id", id);
        return response;
      });
    }

    // Fast path: no promise is allocated.
    function handle(request: RoutedRequest, server: HttpServer): Awaitable<Response> {
      const origin = origins.allowedOrigin(request);
      return origin === undefined
        ? handleErrors(route.handler, request, server)
        : withCors(origin, request, server);
    }

    function withCors(origin: string, request: RoutedRequest, server: HttpServer): Awaitable<Response> {
      const handled = handleErrors(
        // A preflight carries no credentials, so it must not reveal the methods of a guarded route.
        isPreflight(request)
          ? () => preflight(route.access === "public" ? route.allow : notFoundRoute.allow)
          : route.handler,
        request,
        server,
      );
      return chain(handled, (response) => allowOrigin(response, origin));
    }

    function handleErrors(handler: Handler, request: RoutedRequest, server: HttpServer): Awaitable<Response> {
      try {
        if (!acceptsAnyHost) origins.requireHost(request, server);
        const kind = isSafeMethod(request) ? "reads" : "writes";
        if (active[kind] >= limits.maxRequests) return rejectOverloaded(request);
        const response = handler(request, server);
        // A response that is already there does not count as a concurrent request.
        if (!(response instanceof Promise)) return closeIfLast(response, request);
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
            return closeIfLast(settled, request);
          },
          (error) => {
            settle();
            return errorResponse(error, request);
          },
        );
      } catch (error) {
        return errorResponse(error, request);
      }
    }

    async function rejectOverloaded(request: RoutedRequest): Promise<Response> {
      logOverload(path, { route: path });
      await sleep(limits.overloadDelayMs);
      return errorResponse(OVERLOADED, request);
    }

    function errorResponse(error: unknown, request: RoutedRequest): Response {
      const serviceError =
        error instanceof ServiceError ? error : new ServiceError("internal_error", { cause: error });
      const response = errorPage?.(serviceError, request) ?? problem(serviceError);
      if (response.status >= 500 && !UNLOGGED_CODES.has(serviceError.code)) {
        const { id, method } = request;
        logError(path, { id, method, trace: traceId(request) }, serviceError);
      }
      if (isUnfinished(error)) forbidReuse(response.headers);
      return closeIfLast(route.access === "guarded" ? forbidStoring(response) : response, request);
    }
  }

  /**
   * Makes a response the last one of its connection while draining, and after a chunked body: the runtime reads trailers as
   * a new request and answers it, maybe to another client of a proxy. Runs after the handler, because draining may start meanwhile.
   */
  function closeIfLast(response: Response, request: Request): Response {
    if (draining || request.headers.has("transfer-encoding")) forbidReuse(response.headers);
    return response;
  }
}

/** Errors with status 5xx that are expected, so they are not logged as failed requests. */
const UNLOGGED_CODES: ReadonlySet<ErrorCode> = new Set(["overloaded", "stopping"]);

const hasNoBody = (request: Request): boolean => isSafeMethod(request) || request.method === "DELETE";
