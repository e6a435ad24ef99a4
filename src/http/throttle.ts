import { Failure } from "../failure.ts";

const FORGOTTEN_AFTER_MS = 15 * 60_000;
const REMEMBERED_MOST = 10_000;

/**
 * Counts wrong passwords in a row per address and user. Past `mostFailures` it refuses further tries from
 * that address for that user until a quarter of an hour has passed since the last one it let through.
 */
export class Throttle {
  readonly #mostFailures: number;
  readonly #now: () => number;
  /** By address and user, the longest untouched first. */
  readonly #failures = new Map<string, { readonly count: number; readonly until: number }>();

  /**
   * @param mostFailures 0 turns it off
   * @param now milliseconds of a steady clock
   */
  constructor(mostFailures: number, now: () => number) {
    this.#mostFailures = mostFailures;
    this.#now = now;
  }

  /**
   * Runs a check of a password, or throws `too_many_failures`. A try counts from its start, so that many at
   * once cannot slip by; a check that throws has told nobody anything and does not count.
   */
  async guard(address: string, user: string, check: () => Promise<boolean>): Promise<boolean> {
    if (this.#mostFailures === 0) return check();
    const key = JSON.stringify([address, user]);
    const count = this.#count(key);
    this.#set(key, count + 1);
    try {
      const passed = await check();
      if (passed) this.#failures.delete(key);
      return passed;
    } catch (error) {
      const counted = this.#failures.get(key)?.count ?? 0;
      if (counted > 0) this.#set(key, counted - 1);
      throw error;
    }
  }

  #count(key: string): number {
    const failures = this.#failures.get(key);
    const left = (failures?.until ?? 0) - this.#now();
    if (failures === undefined || left <= 0) return 0;
    if (failures.count < this.#mostFailures) return failures.count;
    const seconds = Math.ceil(left / 1000);
    throw new Failure("too_many_failures", {
      detail: `Try again in ${seconds} seconds.`,
      headers: { "Retry-After": String(seconds) },
    });
  }

  #set(key: string, count: number): void {
    this.#failures.delete(key);
    this.#failures.set(key, { count, until: this.#now() + FORGOTTEN_AFTER_MS });
    const [oldest] = this.#failures.keys();
    if (this.#failures.size > REMEMBERED_MOST && oldest !== undefined) this.#failures.delete(oldest);
  }
}
