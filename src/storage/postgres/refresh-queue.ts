import { answeredIn } from "./primary.ts";

/** The delay from a notification to the refresh that covers all notifications since. */
const NOTIFY_DEBOUNCE_MS = 5;

/**
 * Decides when the replica is refreshed. At most one refresh runs and at most one waits for it. A read must not use a
 * refresh that started before the read arrived, so reads join the waiting refresh, never the running one.
 */
export class RefreshQueue {
  readonly #refresh: () => Promise<void>;
  readonly #timeoutMs: number;
  /** Resolves when no refresh runs. Never rejects. */
  #running: Promise<void> = Promise.resolve();
  #waiting: Promise<void> | undefined;
  #debounce: NodeJS.Timeout | undefined;

  constructor(timeoutMs: number, refresh: () => Promise<void>) {
    this.#timeoutMs = timeoutMs;
    this.#refresh = refresh;
  }

  /** Resolves after a refresh that started after this call. Rejects if it fails or does not end in time. */
  next(): Promise<void> {
    this.#waiting ??= answeredIn(this.#timeoutMs, () => this.#runAfter(this.#running));
    return this.#waiting;
  }

  /** Refreshes in the background. A failure is not reported, because the next read fails as well. */
  poll(): void {
    this.next().catch(() => {});
  }

  /** Polls once for all calls of the next few milliseconds. */
  pollSoon(): void {
    this.#debounce ??= setTimeout(() => {
      this.#debounce = undefined;
      this.poll();
    }, NOTIFY_DEBOUNCE_MS);
  }

  close(): void {
    clearTimeout(this.#debounce);
  }

  async #runAfter(running: Promise<void>): Promise<void> {
    await running;
    // Reads that arrive in this turn of the event loop can still join.
    await new Promise(setImmediate);
    this.#waiting = undefined;
    const refresh = this.#refresh();
    this.#running = refresh.catch(() => {});
    await refresh;
  }
}
