import { linkAbort } from "../../src/sdk/abort.ts";
import {
  type CallOptions,
  type LiveList,
  type Todo,
  TodoApiCore,
  TodoApiError,
  type TodoEvent,
} from "../../src/sdk/client.ts";
import { type Snapshot, startList, synchronize } from "../../src/sdk/confirmed-list.ts";
import { readEvents } from "../../src/sdk/event-stream.ts";
import { reuse } from "../../src/sdk/json.ts";
import type { Overlay } from "../../src/sdk/overlay.ts";
import { lead } from "../../src/sdk/position.ts";
import { delay } from "../../src/sdk/retry.ts";
import type { Transport } from "../../src/sdk/transport.ts";
import type { Writes } from "../../src/sdk/writes.ts";
import { pageVisible } from "../visibility.ts";
import { acquireStreamSlot } from "./stream-slots.ts";

/** A request without an answer for this time shows that the connection is bad. */
const SLOW_MS = 1500;
/** Size of the first page, which appears immediately. The second page contains the rest. */
const FIRST_PAGE_SIZE = 500;
/** Time after which a hidden window closes its event stream, because a browser opens at most six connections per server. */
const HIDDEN_TIMEOUT_MS = 30_000;
/** How often to ask for the position while no event stream delivers, and the first time. */
const POLL_MS = 10_000;
const FIRST_POLL_MS = 2000;
/** An event stream that is silent for this long does not deliver: the service sends a comment every 15 seconds. */
const SILENT_MS = 20_000;
/** How long to wait after an error that is not the connection's. */
const RETRY_MS = 5000;

/** Returns a `fetch` that reports each response, when a request has no answer, and when one has. */
export function createFetch(onResponse: (response: Response) => void, onSlow: (isSlow: boolean) => void) {
  return async (url: string, init: RequestInit): Promise<Response> => {
    const timer = setTimeout(() => onSlow(true), SLOW_MS);
    try {
      // Browsers finish these requests after the page has closed. Their bodies are small enough for that (64 KiB).
      const response = await fetch(url, { ...init, keepalive: init.method !== "GET" });
      onResponse(response);
      onSlow(false);
      return response;
    } finally {
      clearTimeout(timer);
    }
  };
}

/** Returns whether the service rejects this browser: it is not signed in any more, or the connection is not secure. */
export const isBrowserRejected = ({ code }: TodoApiError): boolean =>
  code === "unauthorized" || code === "https_required";

/** The list of the service, and its connection. Until the list has loaded, it has no position. */
export type ListState = Omit<LiveList, "todos"> & { readonly todos: readonly Todo[] };

export interface FollowOptions {
  /** The complete list that the browser kept, until the service says what has changed since. */
  readonly from?: Snapshot | undefined;
  readonly onState: (state: ListState) => void;
  /** The effects of the user's changes, which leave with a new list. */
  readonly overlay: Overlay;
  /** The first page of a long list that is shown for the first time. */
  readonly onFirstPage: (todos: readonly Todo[]) => void;
  /** The browser has no connection left for another event stream. Changes made elsewhere will appear later. */
  readonly onTooManyWindows: () => void;
  /** Requests succeed although no event stream delivers, or they fail, too. */
  readonly onPolled: (isPolling: boolean) => void;
  /** Sends the user's changes until the signal aborts. Runs again each time when the list is connected. */
  readonly send: (signal: AbortSignal) => Promise<void>;
}

/** The service, with a list that continues on bad networks. */
export class PageApi extends TodoApiCore {
  /** Public, because the sender needs the position of each answer. */
  declare readonly writes: Writes;
  /** The last list, which a new connection continues. */
  #from: Snapshot | undefined;
  /** The current connection. */
  #controller = new AbortController();
  /** Requests succeed although the event stream is not connected, or is connected and silent. */
  #polling: "disconnected" | "silent" | undefined;
  /** When an event stream delivered last, as `performance.now()` says. */
  #deliveredAt = performance.now();
  /** The service has confirmed the list in the current connection. */
  #isFresh = false;

  /**
   * Follows the list while the page is open and visible. Rejects when the service rejects the credentials, because each
   * further request could count as a failed login.
   */
  async follow(options: FollowOptions): Promise<void> {
    this.#from = options.from;
    while (true) {
      await pageVisible();
      const controller = new AbortController();
      const { signal } = controller;
      this.#controller = controller;
      abortWhenHiddenOrOnline(controller);
      try {
        await this.#followUntil(signal, options);
      } catch (error) {
        if (!(error instanceof TodoApiError) || isBrowserRejected(error)) throw error;
        options.onState({ status: "disconnected", todos: [], error });
        await delay(RETRY_MS, signal);
      } finally {
        controller.abort();
      }
    }
  }

  /** Returns the changes after a position until another one, or none if they cannot be read. */
  async changesBetween(since: string, until: string, signal: AbortSignal): Promise<readonly TodoEvent[]> {
    const events: TodoEvent[] = [];
    if (!(lead(until, since) > 0) || this.#polling !== undefined) return events;
    for await (const event of readEvents(this.transport.send, { since, signal })) {
      if (event.type === "disconnected") throw event.error;
      if (event.type === "resync") return [];
      events.push(event);
      if (lead(event.position, until) >= 0) break;
    }
    return events;
  }

  /** Loads the whole list again, unless that is under way. */
  reload(): void {
    if (this.#from === undefined) return;
    this.#from = undefined;
    this.#controller.abort();
  }

  async #followUntil(signal: AbortSignal, options: FollowOptions): Promise<void> {
    const source = {
      list: (call: CallOptions) => this.#loadList(call, options),
      events: (call: CallOptions & { readonly since: string }) => this.#eventsInSlot(signal, call, options),
    };
    const list = startList(this.#from);
    let sending: ReturnType<typeof linkAbort> | undefined;
    let last = list.status;
    const publish = (): void => {
      const { todos, position, status } = list;
      const isReconnected = status === "connected" && last !== "connected";
      last = status;
      this.#isFresh ||= isReconnected;
      if (isReconnected && this.#polling === "disconnected") this.#polling = undefined;
      options.onState(this.#isFresh ? list : { ...list, position: undefined });
      if (position === undefined || !this.#isFresh) return;
      this.#from = { todos, position };
      if (sending !== undefined && !isReconnected) return;
      // A new connection ends the delay before the next attempt.
      sending?.abort();
      sending = linkAbort(signal);
      options.send(sending.signal);
    };
    this.#poll(list, signal, options);
    this.#isFresh = this.#from === undefined;
    await synchronize(list, options.overlay, source, { signal }, publish);
  }

  /** Asks for the position while no event stream delivers, and loads the list again when it has changed. */
  async #poll(list: ListState, signal: AbortSignal, { onPolled }: FollowOptions): Promise<void> {
    let hasFailed = false;
    await delay(FIRST_POLL_MS, signal);
    for (; !signal.aborted; await delay(POLL_MS, signal)) {
      const isSilent = performance.now() - this.#deliveredAt > SILENT_MS;
      // After a failure, only a request that succeeds shows that requests arrive.
      const isNecessary = list.status !== "connected" || isSilent || hasFailed;
      if (this.#from === undefined || !isNecessary) continue;
      try {
        const { position } = await this.list({ limit: 1 }, { signal });
        // Without a stream, the list that the browser kept stays unconfirmed.
        const isOutdated = !this.#isFresh || position !== this.#from?.position;
        hasFailed = false;
        if (list.status !== "connected") this.#polling ??= "disconnected";
        else if (isOutdated && isSilent) this.#polling = "silent";
        if (isOutdated) this.reload();
      } catch (error) {
        if (signal.aborted) return;
        if (!(error instanceof TodoApiError)) throw error;
        hasFailed = true;
        this.#polling = undefined;
      }
      onPolled(this.#polling !== undefined);
    }
  }

  /** Loads the list in two pages, which may differ in age. It is correct after the events since the first one. */
  async #loadList(call: CallOptions, { onFirstPage }: FollowOptions): Promise<Snapshot> {
    const { next, position, todos: first } = await this.list({ limit: FIRST_PAGE_SIZE }, call);
    let todos = first;
    if (next !== undefined) {
      onFirstPage(first);
      const rest = await this.list({ after: next }, call);
      todos = first.concat(rest.todos);
    }
    this.#isFresh = true;
    return { todos: reuse(todos, this.#from?.todos ?? []), position };
  }

  async *#eventsInSlot(
    signal: AbortSignal,
    call: CallOptions & { readonly since: string },
    { onTooManyWindows }: FollowOptions,
  ): AsyncGenerator<TodoEvent, void, undefined> {
    const release = await acquireStreamSlot(signal, onTooManyWindows);
    try {
      yield* readEvents(this.#openStream, call);
    } finally {
      release();
    }
  }

  readonly #openStream: Transport["send"] = async (...request) => {
    const exchange = await this.transport.send(...request);
    return { ...exchange, pieces: this.#watch(exchange.pieces) };
  };

  /** Notes when an event stream delivers. Its first bytes do not count, because some proxies forward only these. */
  async *#watch(pieces: AsyncIterable<string>): AsyncGenerator<string, void, undefined> {
    let isFirst = true;
    for await (const piece of pieces) {
      if (!isFirst) {
        this.#deliveredAt = performance.now();
        this.#polling = undefined;
      }
      isFirst = false;
      yield piece;
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
