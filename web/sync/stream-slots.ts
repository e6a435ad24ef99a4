import { delay } from "../../src/sdk/retry.ts";
import { findLocks } from "./locks.ts";

/** Over HTTP/1.1, browsers open six connections to a server. One stays free for requests. */
const MAX_STREAMS = 5;
/** How often a window without a slot looks for one. */
const RETRY_MS = 1000;

/**
 * Waits until this window may open an event stream, and returns a function that releases its slot. All windows of the
 * browser share the slots. Each attempt that finds none calls `onFull`. Without HTTP/1.1 or without Web Locks, slots are
 * unlimited. Rejects if the signal aborts.
 */
export async function acquireStreamSlot(signal: AbortSignal, onFull: () => void): Promise<() => void> {
  if (isMultiplexed() || (await findLocks()) === undefined) return () => {};
  while (!signal.aborted) {
    for (const name of SLOTS) {
      const release = await requestLock(name);
      if (release !== undefined) return release;
    }
    onFull();
    await delay(RETRY_MS, signal);
  }
  throw signal.reason;
}

const SLOTS = Array.from({ length: MAX_STREAMS }, (_, index) => `todo-service.stream-${index}`);

/** Returns whether requests share one connection. */
export function isMultiplexed(): boolean {
  const [navigation] = performance.getEntriesByType("navigation");
  if (navigation === undefined) return false;
  return navigation instanceof PerformanceNavigationTiming && /^h[23]/.test(navigation.nextHopProtocol);
}

/** Returns a function that releases the lock, or undefined if it is not available. */
function requestLock(name: string): Promise<(() => void) | undefined> {
  return new Promise((resolve, reject) => {
    const hold = (lock: Lock | null): Promise<void> | undefined => {
      if (lock !== null) return new Promise((release) => resolve(release));
      resolve(undefined);
      return undefined;
    };
    navigator.locks.request(name, { ifAvailable: true }, hold).catch(reject);
  });
}
