import { ServiceError } from "../../error.ts";
import { STORE_OPERATIONS, type TodoStore } from "../../todo.ts";
import type { Handler } from "../route.ts";

/** Receives measurements; `metrics.ts` implements it. All labels come from closed sets, whatever clients send. */
export interface Observer {
  /** Returns the observer of a route. The route is a path pattern, never the requested path. */
  readonly route: (route: string) => RouteObserver;
  /** Returns the observer of a store operation, such as `setDone`. */
  readonly store: (operation: string, kind: "read" | "write") => StoreObserver;
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

/** Why a store operation failed. */
export type StoreFailure = "unavailable" | "full" | "error";

export const SURFACES = ["bearer", "basic", "private"] as const;
export type Surface = (typeof SURFACES)[number];

/**
 * `passed`: the credential is right; the request may still be rejected, for example by its scope. `absent`: the request has no
 * credential. `in_clear`: the request has a credential over plain HTTP, which is rejected.
 */
export const AUTHENTICATION_OUTCOMES = [
  ...(["passed", "absent", "malformed", "wrong"] as const),
  ...(["throttled", "in_clear", "unavailable"] as const),
] as const;
export type AuthenticationOutcome = (typeof AUTHENTICATION_OUTCOMES)[number];
/** Records the outcome of an authentication. */
export type RecordOutcome = (outcome: AuthenticationOutcome) => void;

/**
 * Returns a handler that reports each response.
 * @param monotonicNow a steady clock in milliseconds
 */
export function instrumentHandler(
  handler: Handler,
  observer: RouteObserver,
  monotonicNow: () => number,
): Handler {
  return (request, server) => {
    const started = monotonicNow();
    const record = (response: Response): Response => {
      observer.answered(request.method, response.status, monotonicNow() - started);
      return response;
    };
    const response = handler(request, server);
    if (!(response instanceof Promise)) return record(response);
    observer.waiting(1);
    return response.then(record).finally(() => observer.waiting(-1));
  };
}

/** Returns the store with its operations measured. */
export function instrumentStore(store: TodoStore, observer: Observer, monotonicNow: () => number): TodoStore {
  const instrumented: TodoStore = Object.create(null);
  for (const [name, kind] of Object.entries(STORE_OPERATIONS)) {
    const operation: unknown = Reflect.get(store, name);
    if (typeof operation !== "function") continue;
    const call: (...given: unknown[]) => unknown = operation.bind(store);
    const value = kind === "unmeasured" ? call : measured(call, observer.store(name, kind), monotonicNow);
    Reflect.set(instrumented, name, value);
  }
  return instrumented;
}

/** Returns a function with its failures, and the duration of its promises, reported. */
function measured(
  call: (...given: unknown[]) => unknown,
  { answered, failed }: StoreObserver,
  monotonicNow: () => number,
): (...given: unknown[]) => unknown {
  const recordFailure = (error: unknown): never => {
    const reason = getStoreFailure(error);
    if (reason !== undefined) failed(reason);
    throw error;
  };
  return (...given) => {
    try {
      const result = call(...given);
      if (!(result instanceof Promise)) return result;
      const started = monotonicNow();
      return result.then((value) => {
        answered(monotonicNow() - started);
        return value;
      }, recordFailure);
    } catch (error) {
      return recordFailure(error);
    }
  };
}

/** Returns why the store failed, or `undefined` if the request itself was invalid. */
function getStoreFailure(error: unknown): StoreFailure | undefined {
  if (!(error instanceof ServiceError)) return "error";
  if (error.code === "store_unavailable") return "unavailable";
  return error.code === "store_full" ? "full" : undefined;
}
