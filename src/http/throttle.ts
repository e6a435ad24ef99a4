import { hash } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { Failure } from "../failure.ts";

const FORGOTTEN_AFTER_MS = 15 * 60_000;
const REMEMBERED_MOST = 10_000;
/** Of one network and user: the queue of slow checks has room for others beside them. */
const AT_ONCE = 16;
const HELD_MOST = 500;
const HELD_MS = 2;

/** The wrong passwords in a row from one network for one user. */
interface Tally {
  failures: number;
  /** When the failures are forgotten. */
  until: number;
  inFlight: number;
  /** Resolves when a check in flight ends. */
  settled: PromiseWithResolvers<void>;
}

/**
 * Counts wrong passwords in a row per network and user. Past `mostFailures` it refuses further tries from
 * that network for that user until a quarter of an hour has passed since the last one that was checked.
 */
export class Throttle {
  readonly #mostFailures: number;
  readonly #now: () => number;
  /** By a digest of network and user, the longest untouched first. */
  readonly #tallies = new Map<string, Tally>();
  /** Those that have reached the limit, apart: tries with other names must not push them out. */
  readonly #refused = new Map<string, Tally>();
  #held = 0;

  /**
   * @param mostFailures 0 turns it off
   * @param now milliseconds of a steady clock
   */
  constructor(mostFailures: number, now: () => number) {
    this.#mostFailures = mostFailures;
    this.#now = now;
  }

  /** Runs a check of a password, or throws `too_many_failures`. A check that throws does not count. */
  async guard(network: string, user: string, check: () => Promise<boolean>): Promise<boolean> {
    if (this.#mostFailures === 0) return check();
    // A digest, because a user name may be as long as a request's head.
    const key = hash("sha256", JSON.stringify([network, user]));
    const tally = await this.#admitted(key);
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

  /**
   * Holds a refusal back, by two milliseconds for each one that is held: whoever asks again at once does so five
   * hundred times a second, over however many connections.
   */
  async hold(): Promise<void> {
    if (this.#mostFailures === 0 || this.#held >= HELD_MOST) return;
    this.#held++;
    await sleep(this.#held * HELD_MS);
    this.#held--;
  }

  /** Checks in flight may all fail: no more run at once than could reach the limit, the rest wait for them. */
  async #admitted(key: string): Promise<Tally> {
    for (;;) {
      const tally = this.#tally(key);
      const left = tally.until - this.#now();
      if (left <= 0) {
        tally.failures = 0;
        this.#refused.delete(key);
      }
      if (tally.failures >= this.#mostFailures) throw tooMany(Math.ceil(left / 1000));
      const most = Math.min(AT_ONCE, this.#mostFailures - tally.failures);
      if (tally.inFlight < most) {
        // Before anything is awaited: all that wait are woken in the same turn.
        tally.inFlight++;
        return tally;
      }
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
