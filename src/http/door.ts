import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { Failure, type FailureCode } from "../failure.ts";
import type { Awaitable } from "../todo.ts";
import { failureLog } from "./failure-log.ts";
import type { Log } from "./log.ts";
import { isPreflight, type OriginPolicy, preflight, share } from "./origin.ts";
import { Places, seldom } from "./places.ts";
import { problem } from "./reply.ts";
import { type Handler, nowhere, type Peer, type Route, type RoutedRequest } from "./route.ts";
import { traceOf } from "./trace.ts";

/** Who asks again at once, and many do, is made to wait: a storm of refusals would leave no time for answers. */
const REFUSED_AFTER_MS = 1000;

export interface DoorOptions {
  readonly origins: OriginPolicy;
  readonly log: Log;
  /** Write a line for each request. */
  readonly accessLog: boolean;
  /** How many requests may wait for their answer: of each path, so many that read, and as many that write. */
  readonly maxRequests: number;
  /** Milliseconds of a steady clock. */
  readonly now: () => number;
}

/** What every request passes, whatever its route: the Host, CORS, the single catch, the access log. */
export interface Door {
  readonly lead: (path: string, route: Route) => Handler;
  /** From now on each response closes its connection. */
  readonly close: () => void;
}

export function openDoor({ origins, log, accessLog, maxRequests, now }: DoorOptions): Door {
  const logFailure = failureLog(log, now);
  let closing = false;
  return {
    lead,
    close: () => {
      closing = true;
    },
  };

  function lead(path: string, route: Route): Handler {
    const onRefusal = seldom((times) => log.warn({ route: path, times }, "overloaded"), now);
    const reads = new Places(maxRequests, onRefusal);
    const writes = new Places(maxRequests, onRefusal);
    if (!accessLog) return (request, peer) => answer(request, peer, undefined);
    return async (request, peer) => {
      const started = now();
      const id = randomUUID();
      const response = await answer(request, peer, id);
      response.headers.set("X-Request-Id", id);
      const ms = Math.round((now() - started) * 1000) / 1000;
      const { method } = request;
      log.info({ id, method, route: path, status: response.status, ms, trace: traceOf(request) }, "request");
      return response;
    };

    /** Most requests have nothing to be looked at: they cost no promise, and off loopback no header. */
    function answer(request: RoutedRequest, peer: Peer, id: string | undefined): Awaitable<Response> {
      const origin = origins.listsAny ? request.headers.get("origin") : null;
      if (origin === null && !route.guarded) return caught(route.handler, request, peer, id);
      return decorated(origin !== null && origins.lists(origin) ? origin : undefined, request, peer, id);
    }

    async function decorated(
      origin: string | undefined,
      request: RoutedRequest,
      peer: Peer,
      id: string | undefined,
    ): Promise<Response> {
      const preflighted = origin !== undefined && isPreflight(request);
      const response = await caught(
        // What lies behind a guard is not told to whoever has not passed it.
        preflighted ? () => preflight(route.guarded ? nowhere.allow : route.allow) : route.handler,
        request,
        peer,
        id,
      );
      if (route.guarded) response.headers.set("Cache-Control", "no-store");
      if (origin !== undefined) share(response, origin);
      return response;
    }

    function caught(
      handler: Handler,
      request: RoutedRequest,
      peer: Peer,
      id: string | undefined,
    ): Awaitable<Response> {
      try {
        origins.requireHost(request);
        const places = isRead(request) ? reads : writes;
        if (places.areTaken) return refused(places.refusal(), request, id);
        const response = handler(request, peer);
        // What is answered at once takes no place.
        if (!(response instanceof Promise)) return leaving(response);
        places.take();
        return response.then(
          (answered) => {
            places.free();
            return leaving(answered);
          },
          (error) => {
            places.free();
            return failed(error, request, id);
          },
        );
      } catch (error) {
        return failed(error, request, id);
      }
    }

    async function refused(failure: Failure, request: Request, id: string | undefined): Promise<Response> {
      await sleep(REFUSED_AFTER_MS);
      return failed(failure, request, id);
    }

    function failed(error: unknown, request: Request, id: string | undefined): Response {
      const failure = error instanceof Failure ? error : new Failure("internal_error", { cause: error });
      const response = problem(failure);
      if (response.status >= 500 && !OF_ITS_OWN_ACCORD.has(failure.code)) {
        logFailure({ id, method: request.method, route: path, trace: traceOf(request) }, failure);
      }
      return leaving(response);
    }
  }

  /** Looked at last: what was accepted before the door began to close leaves after. */
  function leaving(response: Response): Response {
    if (closing) response.headers.set("Connection", "close");
    return response;
  }
}

/** What the service does on purpose is no fault to be logged, however often it is asked. */
const OF_ITS_OWN_ACCORD: ReadonlySet<FailureCode> = new Set(["overloaded", "stopping"]);

const isRead = ({ method }: Request): boolean =>
  method === "GET" || method === "HEAD" || method === "OPTIONS";
