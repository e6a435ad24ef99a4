import {
  type CallOptions,
  type LiveList,
  type Todo,
  TodoApiCore,
  TodoApiError,
  type TodoEvent,
  type TodoList,
} from "../src/sdk/client.ts";
import { readEvents } from "../src/sdk/event-stream.ts";
import { followList } from "../src/sdk/follow.ts";
import { delay } from "../src/sdk/retry.ts";
import { pageVisible } from "./dom.ts";
import { fetchList } from "./session.ts";
import { acquireStreamSlot } from "./stream-slots.ts";

/** A request without an answer for this time shows that the connection is bad. */
const SLOW_MS = 1500;
/** Size of the first page, which appears immediately. The second page contains the rest. */
const FIRST_PAGE_SIZE = 500;
/** Time after which a hidden window closes its event stream, because a browser opens at most six connections per server. */
const HIDDEN_TIMEOUT_MS = 30_000;
/** How long to wait after an error that is not the connection's. */
const RETRY_MS = 5000;

/** Returns a `fetch` that reports when a request has no answer, and when one has. */
export function createFetch(onSlow: (isSlow: boolean) => void) {
  return async (url: string, init: RequestInit): Promise<Response> => {
    const timer = setTimeout(() => onSlow(true), SLOW_MS);
    try {
      // Browsers finish these requests after the page has closed. Their bodies are small enough for that (64 KiB).
      const response = await fetchList(url, { ...init, keepalive: init.method !== "GET" });
      onSlow(false);
      return response;
    } finally {
      clearTimeout(timer);
    }
  };
}

/** Returns whether the service rejects this browser: it is not signed in any more, or the connection is not secure. */
const isRejection = ({ code }: TodoApiError): boolean => code === "unauthorized" || code === "https_required";

export interface FollowOptions {
  /** Each state of the list. Until it has loaded, it has no position. */
  readonly onState: (state: LiveList) => void;
  /** The first page of a long list that is shown for the first time. */
  readonly onFirstPage: (todos: readonly Todo[]) => void;
  /** The browser has no connection left for another event stream. Changes made elsewhere will appear later. */
  readonly onTooManyWindows: () => void;
  /** Sends the user's changes until the signal aborts. Runs again each time when the list is connected. */
  readonly send: (signal: AbortSignal) => Promise<void>;
}

/** The part of TodoApi that the page needs, so that the page stays small. */
export class PageApi extends TodoApiCore {
  /**
   * Follows the list while the page is open and visible. Rejects when the service rejects the credentials, because each
   * further request could count as a failed login.
   */
  async follow(options: FollowOptions): Promise<void> {
    while (true) {
      await pageVisible();
      const controller = new AbortController();
      const { signal } = controller;
      abortWhenHiddenOrOnline(controller);
      try {
        await this.#followUntil(signal, options);
      } catch (error) {
        if (!(error instanceof TodoApiError) || isRejection(error)) throw error;
        options.onState({ status: "disconnected", todos: [], error });
        await delay(RETRY_MS, signal);
      } finally {
        controller.abort();
      }
    }
  }

  async #followUntil(signal: AbortSignal, options: FollowOptions): Promise<void> {
    const source = {
      list: (_query: object, call: CallOptions) => this.#loadList(call, options),
      events: (call: CallOptions & { readonly since: string }) => this.#eventsInSlot(signal, call, options),
      writes: this.writes,
      restarts: new Set<() => void>(),
    };
    let isSending = false;
    let sending = new AbortController();
    signal.addEventListener("abort", () => sending.abort());
    let { status }: Pick<LiveList, "status"> = { status: "connecting" };
    for await (const state of followList(source, { signal })) {
      options.onState(state);
      // A new connection ends the delay before the next attempt.
      const isReconnected = state.status === "connected" && status !== "connected";
      ({ status } = state);
      if (state.position === undefined || (isSending && !isReconnected)) continue;
      isSending = true;
      sending.abort();
      sending = new AbortController();
      options.send(sending.signal);
    }
  }

  /** Loads the list in two pages, which may differ in age. It is correct after the events since the first one. */
  async #loadList(call: CallOptions, { onFirstPage }: FollowOptions): Promise<TodoList> {
    const first = await this.list({ limit: FIRST_PAGE_SIZE }, call);
    const last = first.todos.at(-1);
    if (first.next === undefined || last === undefined) return first;
    onFirstPage(first.todos);
    const rest = await this.list({ after: last.id }, call);
    return { todos: first.todos.concat(rest.todos), position: first.position };
  }

  async *#eventsInSlot(
    signal: AbortSignal,
    call: CallOptions & { readonly since: string },
    { onTooManyWindows }: FollowOptions,
  ): AsyncGenerator<TodoEvent, void, undefined> {
    const release = await acquireStreamSlot(signal, onTooManyWindows);
    try {
      yield* readEvents(this.transport.send, call);
    } finally {
      release();
    }
  }
}

/**
 * Aborts when the window has been hidden for `HIDDEN_TIMEOUT_MS`, and when the device is back online, so that the window
 * connects again at once.
 */
function abortWhenHiddenOrOnline(controller: AbortController): void {
  const { signal } = controller;
  const abort = (): void => controller.abort();
  let timer: ReturnType<typeof setTimeout> | undefined;
  const onVisibilityChange = (): void => {
    clearTimeout(timer);
    if (document.hidden) timer = setTimeout(abort, HIDDEN_TIMEOUT_MS);
  };
  document.addEventListener("visibilitychange", onVisibilityChange, { signal });
  addEventListener("online", abort, { signal });
  onVisibilityChange();
}
