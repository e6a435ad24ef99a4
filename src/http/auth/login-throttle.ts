import { hash } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { ServiceError } from "../../error.ts";

const RESET_AFTER_MS = 15 * 60_000;
const MAX_TRACKED = 10_000;
/** Maximum concurrent checks for one network and user, so that they cannot fill the queue of slow checks. */
const MAX_CONCURRENT = 16;
const MAX_DELAYED = 500;
const DELAY_STEP_MS = 2;

/** The consecutive wrong passwords from one network for one user. */
interface AttemptCount {
  failures: number;
  /** The time when `failures` is reset, on the steady clock. */
  until: number;
  inFlight: number;
  /** Resolves when one of the checks in flight ends. */
  settled: PromiseWithResolvers<void>;
}

/**
 * Counts consecutive wrong passwords per network and user. After `maxFailures` of them, it rejects attempts from that
 * network for that user until 15 minutes after the last checked attempt.
 */
export class LoginThrottle {
  readonly #maxFailures: number;
  readonly #monotonicNow: () => number;
  /** The counts by a digest of network and user, least recently used first. */
  readonly #counts = new Map<string, AttemptCount>();
  /** The counts that have reached the limit. They are separate, so that attempts with other names cannot evict them. */
  readonly #rejected = new Map<string, AttemptCount>();
  #delayed = 0;

  /**
   * @param maxFailures consecutive wrong passwords before a rejection; 0 for no limit
   * @param monotonicNow a steady clock in milliseconds
   */
  constructor(maxFailures: number, monotonicNow: () => number) {
    this.#maxFailures = maxFailures;
    this.#monotonicNow = monotonicNow;
  }

  /** Runs a password check and returns its result. Throws `too_many_failures` at the limit. A check that throws does not count. */
  async attempt(network: string, user: string, check: () => Promise<boolean>): Promise<boolean> {
    if (this.#maxFailures === 0) return check();
    // A digest limits the memory for long user names.
    const key = hash("sha256", JSON.stringify([network, user]));
    const count = await this.#reserve(key);
    try {
      const isCorrect = await check();
      count.failures = isCorrect ? 0 : count.failures + 1;
      count.until = this.#monotonicNow() + RESET_AFTER_MS;
      if (count.failures >= this.#maxFailures) keep(this.#rejected, key, count);
      return isCorrect;
    } finally {
      count.inFlight--;
      if (count.failures === 0 && count.inFlight === 0) this.#forget(key);
      count.settled.resolve();
      count.settled = Promise.withResolvers();
    }
  }

  /**
   * Delays a rejection by 2 ms for each rejection that is being delayed. This limits instant retries to 500 per second
   * over all connections. Beyond 500 delayed rejections, it does not delay.
   */
  async delayRefusal(): Promise<void> {
    if (this.#maxFailures === 0 || this.#delayed >= MAX_DELAYED) return;
    this.#delayed++;
    await sleep(this.#delayed * DELAY_STEP_MS);
    this.#delayed--;
  }

  /** Waits until the checks in flight cannot exceed the limit even if all fail, then reserves an attempt. */
  async #reserve(key: string): Promise<AttemptCount> {
    for (;;) {
      const count = this.#countFor(key);
      const left = count.until - this.#monotonicNow();
      if (left <= 0) {
        count.failures = 0;
        this.#rejected.delete(key);
        // The count may have been evicted from this map while it was in the other one.
        keep(this.#counts, key, count);
      }
      if (count.failures >= this.#maxFailures) throw tooMany(Math.ceil(left / 1000));
      const max = Math.min(MAX_CONCURRENT, this.#maxFailures - count.failures);
      if (count.inFlight < max) {
        // Increment before any await, because all waiting attempts resume in the same turn.
        count.inFlight++;
        return count;
      }
      await count.settled.promise;
    }
  }

  #forget(key: string): void {
    this.#counts.delete(key);
    this.#rejected.delete(key);
  }

  #countFor(key: string): AttemptCount {
    const rejected = this.#rejected.get(key);
    if (rejected !== undefined) return rejected;
    const count = this.#counts.get(key) ?? {
      failures: 0,
      until: 0,
      inFlight: 0,
      settled: Promise.withResolvers<void>(),
    };
    keep(this.#counts, key, count);
    return count;
  }
}

/** Marks a count as the most recently used, and evicts the least recently used above `MAX_TRACKED`. */
function keep(counts: Map<string, AttemptCount>, key: string, count: AttemptCount): void {
  counts.delete(key);
  counts.set(key, count);
  const [oldest] = counts.keys();
  if (counts.size > MAX_TRACKED && oldest !== undefined) counts.delete(oldest);
}

function tooMany(seconds: number): ServiceError {
  return new ServiceError("too_many_failures", {
    detail: `Try again in ${seconds} seconds.`,
    headers: { "Retry-After": String(seconds) },
  });
}
