import { parseBasic, parseBearer } from "../credential/authorization.ts";
import { Failure } from "../failure.ts";
import type { Awaitable, TodoStore } from "../todo.ts";
import type { Guard, Handler } from "./route.ts";

/** Who is told what happens; `http/metrics.ts` has one. What is told of comes from closed sets, whatever is asked. */
export interface Observer {
  /** Told of each request of a route; the route is its pattern, never a path that was asked for. */
  readonly route: (route: string) => RouteObserver;
  readonly store: (operation: StoreOperation) => StoreObserver;
  readonly surface: (surface: Surface) => (outcome: AuthenticationOutcome) => void;
  /** Handed a function that says how many streams of events are open. */
  readonly subscribers: (count: () => number) => void;
}

export interface RouteObserver {
  /** A request that is not answered at once waits from now on, or, with -1, no more. */
  readonly waiting: (change: 1 | -1) => void;
  /** @param ms from when the request's head was read until its response was there, without the sending of it */
  readonly answered: (method: string, status: number, ms: number) => void;
}

export interface StoreObserver {
  /** Told of what is not answered at once. */
  readonly answered: (ms: number) => void;
  readonly failed: (reason: StoreFailure) => void;
}

export const STORE_OPERATIONS = ["insert", "get", "list", "set_done", "delete", "position"] as const;
export type StoreOperation = (typeof STORE_OPERATIONS)[number];

/** Why a store did not do what it was asked to. */
export type StoreFailure = "unavailable" | "full" | "error";

export const SURFACES = ["bearer", "basic"] as const;
export type Surface = (typeof SURFACES)[number];

/** `absent`: no credential was sent; `in_clear`: a password that would not be taken over plain HTTP. */
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

/** Lets an observer see handlers, guards and a store; without one, each of them stays as it is. */
export interface Observation {
  readonly handler: (route: string, handler: Handler) => Handler;
  readonly guard: <Identity>(surface: Surface, guard: Guard<Identity>) => Guard<Identity>;
  readonly store: (store: TodoStore) => TodoStore;
}

const NONE: Observation = {
  handler: (_route, handler) => handler,
  guard: (_surface, guard) => guard,
  store: (store) => store,
};

/** @param now milliseconds of a steady clock */
export function observedBy(observer: Observer | undefined, now: () => number): Observation {
  if (observer === undefined) return NONE;
  return {
    handler: (route, handler) => observedHandler(handler, observer.route(route), now),
    guard: (surface, guard) => observedGuard(guard, PARSERS[surface], observer.surface(surface)),
    store: (store) => observedStore(store, observer, now),
  };
}

function observedHandler(handler: Handler, observer: RouteObserver, now: () => number): Handler {
  return (request, peer) => {
    const started = now();
    const response = handler(request, peer);
    if (response instanceof Promise) return late(request.method, started, response);
    observer.answered(request.method, response.status, now() - started);
    return response;
  };

  async function late(method: string, started: number, answer: Promise<Response>): Promise<Response> {
    observer.waiting(1);
    try {
      const response = await answer;
      observer.answered(method, response.status, now() - started);
      return response;
    } finally {
      observer.waiting(-1);
    }
  }
}

const PARSERS: Readonly<Record<Surface, (authorization: string | null) => { readonly state: string }>> = {
  bearer: parseBearer,
  basic: parseBasic,
};

function observedGuard<Identity>(
  guard: Guard<Identity>,
  parse: (authorization: string | null) => { readonly state: string },
  tell: (outcome: AuthenticationOutcome) => void,
): Guard<Identity> {
  return async (request, peer) => {
    try {
      const identity = await guard(request, peer);
      tell("passed");
      return identity;
    } catch (error) {
      tell(outcomeOf(error, parse(request.headers.get("authorization")).state));
      throw error;
    }
  };
}

function outcomeOf(error: unknown, state: string): AuthenticationOutcome {
  const code = error instanceof Failure ? error.code : undefined;
  if (code === "too_many_failures") return "throttled";
  if (code !== "unauthorized" && code !== "https_required") return "unavailable";
  if (state === "absent") return "absent";
  if (code === "https_required") return "in_clear";
  return state === "malformed" ? "malformed" : "wrong";
}

function observedStore(store: TodoStore, observer: Observer, now: () => number): TodoStore {
  return {
    insert: timed("insert", (title: string, key: string | undefined) => store.insert(title, key)),
    get: timed("get", (id) => store.get(id)),
    list: timed("list", (query) => store.list(query)),
    setDone: timed("set_done", (id, done) => store.setDone(id, done)),
    delete: timed("delete", (id) => store.delete(id)),
    position: timed("position", () => store.position()),
    events: (after, signal) => store.events(after, signal),
    close: () => store.close(),
  };

  function timed<Arguments extends readonly unknown[], Answer>(
    operation: StoreOperation,
    call: (...given: Arguments) => Awaitable<Answer>,
  ): (...given: Arguments) => Awaitable<Answer> {
    const { answered, failed } = observer.store(operation);
    return (...given) => {
      try {
        const answer = call(...given);
        return answer instanceof Promise ? late(now(), answer) : answer;
      } catch (error) {
        throw told(error);
      }
    };

    async function late(started: number, promise: Promise<Answer>): Promise<Answer> {
      try {
        const answer = await promise;
        answered(now() - started);
        return answer;
      } catch (error) {
        throw told(error);
      }
    }

    function told(error: unknown): unknown {
      const reason = reasonOf(error);
      if (reason !== undefined) failed(reason);
      return error;
    }
  }
}

/** What the request itself has wrong is no failure of the store. */
function reasonOf(error: unknown): StoreFailure | undefined {
  if (!(error instanceof Failure)) return "error";
  if (error.code === "store_unavailable") return "unavailable";
  return error.code === "store_full" ? "full" : undefined;
}
