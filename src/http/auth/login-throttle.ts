import { hash } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { ServiceError } from "../../error.ts";

const RESET_AFTER_MS = 15 * 60_000;
const MAX_TRACKED = 10_000;
/** Maximum delayed rejections. */
const MAX_DELAYED = 250;
const DELAY_STEP_MS = 2;

/** The attempts of one user from one network. */
interface AttemptCount {
  /** Consecutive wrong passwords. A check in flight counts as wrong until it ends. */
  failures: number;
  inFlight: number;
  /** The time when `failures` is reset, on the steady clock. */
  until: number;
}

export type LoginThrottle = ReturnType<typeof createLoginThrottle>;

/**
 * Counts consecutive wrong passwords per network and user. After `maxFailures` of them, it rejects attempts from that
 * network for that user until 15 minutes after the start of the last check.
 * @param maxFailures consecutive wrong passwords before a rejection; 0 for no limit
 * @param monotonicNow a steady clock in milliseconds
 */
export function createLoginThrottle(maxFailures: number, monotonicNow: () => number) {
  /** The counts by a digest of network and user, least recently used first. */
  const counts = new Map<string, AttemptCount>();
  /** The counts that have reached the limit. They are separate, so that attempts with other names cannot evict them. */
  const full = new Map<string, AttemptCount>();
  let delayed = 0;
  return { attempt, delayRefusal };

  /**
   * Runs a password check and returns its result. Rejects with `too_many_failures` at the limit, and with
   * `credentials_unavailable` while a check in flight may still refund an attempt. A check that throws does not count.
   */
  async function attempt(network: string, user: string, check: () => Promise<boolean>): Promise<boolean> {
    if (maxFailures === 0) return check();
    // A digest limits the memory for long user names.
    const key = hash("sha256", JSON.stringify([network, user]));
    const count = reserve(key);
    let refund = 1;
    try {
      const isCorrect = await check();
      refund = isCorrect ? count.failures : 0;
      return isCorrect;
    } finally {
      count.failures = Math.max(0, count.failures - refund);
      count.inFlight--;
      keep(key, count);
    }
  }

  /**
   * Delays a rejection by 2 ms for each rejection that is being delayed. This limits instant retries to 500 per second
   * over all connections. Beyond 250 delayed rejections, it does not delay.
   */
  async function delayRefusal(): Promise<void> {
    if (maxFailures === 0 || delayed >= MAX_DELAYED) return;
    delayed++;
    await sleep(delayed * DELAY_STEP_MS);
    delayed--;
  }

  /** Counts an attempt before its check. */
  function reserve(key: string): AttemptCount {
    const now = monotonicNow();
    const count = full.get(key) ?? counts.get(key) ?? { failures: 0, inFlight: 0, until: 0 };
    if (count.until <= now) count.failures = 0;
    if (count.failures >= maxFailures) {
      if (count.inFlight === 0) throw tooMany(Math.ceil((count.until - now) / 1000));
      throw new ServiceError("credentials_unavailable", { detail: "Too many passwords are being checked." });
    }
    count.failures++;
    count.inFlight++;
    count.until = now + RESET_AFTER_MS;
    keep(key, count);
    return count;
  }

  /** Marks a count as the most recently used, and evicts the least recently used above `MAX_TRACKED`. */
  function keep(key: string, count: AttemptCount): void {
    counts.delete(key);
    full.delete(key);
    const kept = count.failures < maxFailures ? counts : full;
    kept.set(key, count);
    const [oldest] = kept.keys();
    if (kept.size > MAX_TRACKED && oldest !== undefined) kept.delete(oldest);
  }
}

function tooMany(seconds: number): ServiceError {
  return new ServiceError("too_many_failures", {
    detail: `Try again in ${seconds} seconds.`,
    headers: { "Retry-After": String(seconds) },
  });
}
