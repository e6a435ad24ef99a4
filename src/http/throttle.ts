import { hash } from "node:crypto";
import { Failure } from "../failure.ts";

const FORGOTTEN_AFTER_MS = 15 * 60_000;
const REMEMBERED_MOST = 10_000;

/** The wrong passwords in a row from one address for one user. */
interface Tally {
  failures: number;
  /** When the failures are forgotten. */
  until: number;
  inFlight: number;
  /** Resolves when a check in flight ends. */
  settled: PromiseWithResolvers<void>;
}

/**
 * Counts wrong passwords in a row per address and user. Past `mostFailures` it refuses further tries from
 * that address for that user until a quarter of an hour has passed since the last one.
 */
export class Throttle {
  readonly #mostFailures: number;
  readonly #now: () => number;
  /** By a digest of address and user, the longest untouched first. */
  readonly #tallies = new Map<string, Tally>();
  /** Those that have reached the limit, apart: tries with other names must not push them out. */
  readonly #refused = new Map<string, Tally>();

  /**
   * @param mostFailures 0 turns it off
   * @param now milliseconds of a steady clock
   */
  constructor(mostFailures: number, now: () => number) {
    this.#mostFailures = mostFailures;
    this.#now = now;
  }

  /** Runs a check of a password, or throws `too_many_failures`. A check that throws does not count. */
  async guard(address: string, user: string, check: () => Promise<boolean>): Promise<boolean> {
    if (this.#mostFailures === 0) return check();
    // A digest, because a user name may be as long as a request's head.
    const key = hash("sha256", JSON.stringify([address, user]));
    const tally = await this.#admitted(key);
    tally.inFlight++;
    try {
      const passed = await check();
      tally.failures = passed ? 0 : tally.failures + 1;
      tally.until = this.#now() + FORGOTTEN_AFTER_MS;
      if (tally.failures >= this.#mostFailures) keep(this.#refused, key, tally);
      return passed;
    } finally {
      tally.inFlight--;
      if (tally.failures === 0 && tally.inFlight === 0) this.#forget(key);
      tally.settled.resolve();
      tally.settled = Promise.withResolvers();
    }
  }

  /** Checks in flight may all fail: as many as could reach the limit run at once, the rest wait for them. */
  async #admitted(key: string): Promise<Tally> {
    for (;;) {
      const tally = this.#tally(key);
      const left = tally.until - this.#now();
      if (left <= 0) {
        tally.failures = 0;
        this.#refused.delete(key);
      }
      if (tally.failures >= this.#mostFailures) throw tooMany(Math.ceil(left / 1000));
      if (tally.failures + tally.inFlight < this.#mostFailures) return tally;
      await tally.settled.promise;
    }
  }

  #forget(key: string): void {
    this.#tallies.delete(key);
    this.#refused.delete(key);
  }

  #tally(key: string): Tally {
    const refused = this.#refused.get(key);
    if (refused !== undefined) return refused;
    const tally = this.#tallies.get(key) ?? {
      failures: 0,
      until: 0,
      inFlight: 0,
      settled: Promise.withResolvers<void>(),
    };
    keep(this.#tallies, key, tally);
    return tally;
  }
}

/** Makes a tally the last to be let go, and lets the first go where there are too many. */
function keep(tallies: Map<string, Tally>, key: string, tally: Tally): void {
  tallies.delete(key);
  tallies.set(key, tally);
  const [oldest] = tallies.keys();
  if (tallies.size > REMEMBERED_MOST && oldest !== undefined) tallies.delete(oldest);
}

function tooMany(seconds: number): Failure {
  return new Failure("too_many_failures", {
    detail: `Try again in ${seconds} seconds.`,
    headers: { "Retry-After": String(seconds) },
  });
}
