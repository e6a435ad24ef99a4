import { TodoApiCore, TodoApiError } from "../src/sdk/client.ts";
import { readEvents } from "../src/sdk/event-stream.ts";
import { delay, retryDelay } from "../src/sdk/retry.ts";
import type { State } from "./state.ts";
import { acquireStreamSlot } from "./stream-slots.ts";
import { errorMessage } from "./undoable-changes.ts";

/** Short, because people wait for the list. A visible window needs one small request for each attempt. */
const MAX_RETRY_MS = 1000;
/** Time after which a hidden window closes its event stream, because a browser opens at most six connections per server. */
const HIDDEN_TIMEOUT_MS = 30_000;

export interface SynchronizeOptions {
  /** The connection is open, and the list has loaded. */
  readonly onConnected: () => void;
  readonly onDisconnected: (reason: string) => void;
  /** The browser has no connection left for another event stream. Changes made elsewhere will appear later. */
  readonly onTooManyWindows: () => void;
  /** The service no longer accepts the credentials of this page. */
  readonly onUnauthorized: () => void;
  /** The list has loaded. `missing` to-dos are gone because the service has another list than before. */
  readonly onLoaded: (missing: number) => void;
  /** Someone changed a to-do. */
  readonly onEvent: () => void;
}

/**
 * Keeps the list up to date while the page is open and visible: loads it, then applies every event. Resolves when the
 * service rejects the credentials, because each further request could count as a failed login.
 */
export async function synchronize(state: State, options: SynchronizeOptions): Promise<void> {
  let attempt = 0;
  const onConnected = (): void => {
    attempt = 0;
    options.onConnected();
  };
  while (true) {
    await pageVisible();
    const controller = new AbortController();
    const { signal } = controller;
    const stopWatching = onHiddenOrOnline(() => controller.abort());
    let release = (): void => {};
    try {
      if (state.position === undefined) options.onLoaded(await state.load(signal, API));
      release = await acquireStreamSlot({ signal, onFull: options.onTooManyWindows });
      await applyEvents(state, { ...options, onConnected }, signal);
    } catch (error) {
      release();
      const apiError = error instanceof TodoApiError ? error : undefined;
      if (apiError?.code === "unauthorized") {
        options.onUnauthorized();
        return;
      }
      if (!signal.aborted) {
        options.onDisconnected(errorMessage(error));
        await delay(retryDelay(attempt++, apiError, MAX_RETRY_MS), signal);
      }
    } finally {
      release();
      stopWatching();
    }
  }
}

/** The part of TodoApi that the page needs, so that the page stays small. */
class PageApi extends TodoApiCore {
  events(options: Parameters<typeof readEvents>[1]): ReturnType<typeof readEvents> {
    return readEvents(this.transport.send, options);
  }
}

/** Each attempt has its own delay here, so requests are not repeated. */
const API = new PageApi({ retries: 0 });

/** Applies events until the signal aborts. Throws when the connection is lost. */
async function applyEvents(
  state: State,
  { onConnected, onLoaded, onEvent }: SynchronizeOptions,
  signal: AbortSignal,
): Promise<void> {
  const since = state.position;
  for await (const event of API.events({ ...(since !== undefined && { since }), signal })) {
    if (event.type === "connected") onConnected();
    else if (event.type === "disconnected")
      throw event.error ?? new TodoApiError("network_error", "the service closed the connection");
    else if (event.type === "resync") onLoaded(await state.load(signal, API));
    else {
      state.apply(event);
      onEvent();
    }
  }
}

/** Resolves when the window is visible. */
function pageVisible(): Promise<void> {
  if (!document.hidden) return Promise.resolve();
  return new Promise((resolve) => {
    document.addEventListener("visibilitychange", () => resolve(), { once: true });
  });
}

/**
 * Calls `callback` when the window has been hidden for `HIDDEN_TIMEOUT_MS`, and when the device is back online, so that the
 * window connects again at once. Returns a function that stops watching.
 */
function onHiddenOrOnline(callback: () => void): () => void {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const onVisibilityChange = (): void => {
    clearTimeout(timer);
    if (document.hidden) timer = setTimeout(callback, HIDDEN_TIMEOUT_MS);
  };
  document.addEventListener("visibilitychange", onVisibilityChange);
  addEventListener("online", callback);
  onVisibilityChange();
  return () => {
    document.removeEventListener("visibilitychange", onVisibilityChange);
    removeEventListener("online", callback);
    clearTimeout(timer);
  };
}
