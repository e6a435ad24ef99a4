import { TodoApi, TodoApiError } from "../src/sdk/client.ts";
import type { State } from "./state.ts";
import { acquireStreamSlot } from "./stream-slots.ts";
import { errorMessage } from "./undoable-changes.ts";

const RETRY_DELAY_MS = 3000;
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
  while (true) {
    await pageVisible();
    const controller = new AbortController();
    const stopWatching = onHidden(() => controller.abort());
    let release = (): void => {};
    try {
      if (state.position === undefined) options.onLoaded(await state.load(controller.signal));
      release = await acquireStreamSlot({ signal: controller.signal, onFull: options.onTooManyWindows });
      await applyEvents(state, options, controller.signal);
    } catch (error) {
      if (error instanceof TodoApiError && error.code === "unauthorized") {
        options.onUnauthorized();
        return;
      }
      if (!controller.signal.aborted) {
        options.onDisconnected(errorMessage(error));
        await new Promise((resolve) => setTimeout(resolve, RETRY_DELAY_MS));
      }
    } finally {
      release();
      stopWatching();
    }
  }
}

async function applyEvents(
  state: State,
  { onConnected, onDisconnected, onLoaded, onEvent }: SynchronizeOptions,
  signal: AbortSignal,
): Promise<void> {
  const since = state.position;
  for await (const event of new TodoApi().events({ ...(since !== undefined && { since }), signal })) {
    if (event.type === "connected") onConnected();
    else if (event.type === "disconnected") onDisconnected("the service cannot be reached.");
    else if (event.type === "resync") onLoaded(await state.load(signal));
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

/** Calls `callback` when the window has been hidden for `HIDDEN_TIMEOUT_MS`. Returns a function that stops watching. */
function onHidden(callback: () => void): () => void {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const onVisibilityChange = (): void => {
    clearTimeout(timer);
    if (document.hidden) timer = setTimeout(callback, HIDDEN_TIMEOUT_MS);
  };
  document.addEventListener("visibilitychange", onVisibilityChange);
  onVisibilityChange();
  return () => {
    document.removeEventListener("visibilitychange", onVisibilityChange);
    clearTimeout(timer);
  };
}
