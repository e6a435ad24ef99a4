import { findLocks } from "./locks.ts";

/** Over HTTP/1.1, browsers open six connections to a server. One stays free for requests. */
const MAX_STREAMS = 5;

export interface StreamSlotOptions {
  readonly signal: AbortSignal;
  /** All slots are taken. The promise resolves when another window closes its stream. */
  readonly onFull: () => void;
}

/**
 * Waits until this window may open an event stream, and returns a function that releases its slot. All windows of the
 * browser share the slots. Without HTTP/1.1 or without Web Locks, slots are unlimited. Rejects if the signal aborts.
 */
export async function acquireStreamSlot({ signal, onFull }: StreamSlotOptions): Promise<() => void> {
  if (isMultiplexed() || (await findLocks()) === undefined) return () => {};
  for (const name of SLOTS) {
    const release = await requestLock(name, { ifAvailable: true });
    if (release !== undefined) return release;
  }
  onFull();
  return waitForSlot(signal);
}

const SLOTS = Array.from({ length: MAX_STREAMS }, (_, index) => `todo-service.stream-${index}`);

function isMultiplexed(): boolean {
  const [navigation] = performance.getEntriesByType("navigation");
  return navigation instanceof PerformanceNavigationTiming && /^h[23]/.test(navigation.nextHopProtocol);
}

/** Requests all slots and keeps the first one that becomes free. */
async function waitForSlot(signal: AbortSignal): Promise<() => void> {
  const found = new AbortController();
  const options = { signal: AbortSignal.any([signal, found.signal]) };
  const acquired: (() => void)[] = [];
  const requests = SLOTS.map(async (name) => {
    const release = await requestLock(name, options);
    if (release === undefined) return;
    if (acquired.push(release) === 1) found.abort();
    else release();
  });
  await Promise.all(requests);
  const [release] = acquired;
  if (release === undefined) throw signal.reason;
  return release;
}

/** Returns a function that releases the lock, or undefined if it is not available or the signal aborts. */
function requestLock(name: string, options: LockOptions): Promise<(() => void) | undefined> {
  return new Promise((resolve, reject) => {
    const hold = (lock: Lock | null): Promise<void> | undefined => {
      if (lock !== null) return new Promise((release) => resolve(release));
      resolve(undefined);
      return undefined;
    };
    navigator.locks.request(name, options, hold).catch((error: unknown) => {
      if (options.signal?.aborted) resolve(undefined);
      else reject(error);
    });
  });
}
