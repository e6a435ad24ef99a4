import type { Awaitable } from "../../awaitable.ts";
import { ServiceError } from "../../error.ts";
import type { TodoStore } from "../../todo.ts";
import type { Handler } from "../route.ts";

/** Receives measurements; `metrics.ts` implements it. All labels come from closed sets, whatever clients send. */
export interface Observer {
  /** Returns the observer of a route. The route is a path pattern, never the requested path. */
  readonly route: (route: string) => RouteObserver;
  /** Returns the observer of a store operation. */
  readonly store: (operation: StoreOperation) => StoreObserver;
  /** Returns a function that records the outcome of an authentication. */
  readonly surface: (surface: Surface) => RecordOutcome;
  /** Receives a function that returns the number of open event streams. */
  readonly subscribers: (count: () => number) => void;
}

export interface RouteObserver {
  /** Records that a request without an immediate response starts (1) or stops (-1) waiting. */
  readonly waiting: (change: 1 | -1) => void;
  /**
   * Records a response.
   * @param ms milliseconds from the request's head until the response exists, without the time to send it
   */
  readonly answered: (method: string, status: number, ms: number) => void;
}

export interface StoreObserver {
  /** Records an operation that returned a promise, with its duration in milliseconds. */
  readonly answered: (ms: number) => void;
  readonly failed: (reason: StoreFailure) => void;
}

export const STORE_OPERATIONS = ["insert", "get", "list", "set_done", "delete", "position"] as const;
export type StoreOperation = (typeof STORE_OPERATIONS)[number];

/** Why a store operation failed. */
export type StoreFailure = "unavailable" | "full" | "error";

export const SURFACES = ["bearer", "basic", "private"] as const;
export type Surface = (typeof SURFACES)[number];

/**
 * `passed`: the credential is right; the request may still be rejected, for example by its scope. `absent`: the request has no
 * credential. `in_clear`: the request has a credential over plain HTTP, which is rejected.
 */
export const AUTHENTICATION_OUTCOMES = [
  "passed",
  "absent",
  "malformed",
  "wrong",
  "throttled",
  "in_clear",
  "unavailable",
] as const;
export type AuthenticationOutcome = (typeof AUTHENTICATION_OUTCOMES)[number];
/** Records the outcome of an authentication. */
export type RecordOutcome = (outcome: AuthenticationOutcome) => void;

/**
 * Returns functions that wrap handlers and a store so that an observer receives measurements. Without an observer, nothing
 * is wrapped.
 * @param monotonicNow a steady clock in milliseconds
 */
export function instrument(observer: Observer | undefined, monotonicNow: () => number) {
  return {
    handler: (route: string, handler: Handler): Handler =>
      observer === undefined ? handler : instrumentHandler(handler, observer.route(route), monotonicNow),
    /** Returns the function to which a guard reports each outcome. */
    surface: (surface: Surface): RecordOutcome => observer?.surface(surface) ?? (() => {}),
    store: (store: TodoStore): TodoStore =>
      observer === undefined ? store : instrumentStore(store, observer, monotonicNow),
  };
}

function instrumentHandler(handler: Handler, observer: RouteObserver, monotonicNow: () => number): Handler {
  return (request, server) => {
    const started = monotonicNow();
    const response = handler(request, server);
    if (response instanceof Promise) return measure(request.method, started, response);
    observer.answered(request.method, response.status, monotonicNow() - started);
    return response;
  };

  async function measure(method: string, started: number, answer: Promise<Response>): Promise<Response> {
    observer.waiting(1);
    try {
      const response = await answer;
      observer.answered(method, response.status, monotonicNow() - started);
      return response;
    } finally {
      observer.waiting(-1);
    }
  }
}

function instrumentStore(store: TodoStore, observer: Observer, monotonicNow: () => number): TodoStore {
  return {
    insert: timed("insert", (title: string, key: string | undefined) => store.insert(title, key)),
    get: timed("get", (id) => store.get(id)),
    list: timed("list", (query, maxBlobBytes) => store.list(query, maxBlobBytes)),
    setDone: timed("set_done", (id, done) => store.setDone(id, done)),
    delete: timed("delete", (id) => store.delete(id)),
    position: timed("position", () => store.position()),
    checkWrites: () => store.checkWrites?.(),
    events: (after, signal) => store.events(after, signal),
    close: () => store.close(),
  };

  function timed<Arguments extends readonly unknown[], Result>(
    operation: StoreOperation,
    call: (...given: Arguments) => Awaitable<Result>,
  ): (...given: Arguments) => Awaitable<Result> {
    const { answered, failed } = observer.store(operation);
    return (...given) => {
      try {
        const result = call(...given);
        return result instanceof Promise ? measure(monotonicNow(), result) : result;
      } catch (error) {
        throw recordFailure(error);
      }
    };

    async function measure(started: number, promise: Promise<Result>): Promise<Result> {
      try {
        const result = await promise;
        answered(monotonicNow() - started);
        return result;
      } catch (error) {
        throw recordFailure(error);
      }
    }

    function recordFailure(error: unknown): unknown {
      const reason = getStoreFailure(error);
      if (reason !== undefined) failed(reason);
      return error;
    }
  }
}

/** Returns why the store failed, or `undefined` if the request itself was invalid. */
function getStoreFailure(error: unknown): StoreFailure | undefined {
  if (!(error instanceof ServiceError)) return "error";
  if (error.code === "store_unavailable") return "unavailable";
  return error.code === "store_full" ? "full" : undefined;
}
