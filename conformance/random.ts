/** Random numbers that a seed repeats. */
export class Random {
  #state: number;

  constructor(seed: number) {
    this.#state = seed;
  }

  /** Returns an integer from 0 to `limit` - 1. The generator is mulberry32. */
  below(limit: number): number {
    this.#state = (this.#state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(this.#state ^ (this.#state >>> 15), 1 | this.#state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return Math.floor((((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32) * limit);
  }

  /** Returns true with this probability. */
  chance(probability: number): boolean {
    return this.below(1_000_000) < probability * 1_000_000;
  }

  pick<T>(values: readonly T[]): T {
    const value = values[this.below(values.length)];
    if (value === undefined) throw new Error("pick needs values");
    return value;
  }

  shuffle<T>(values: readonly T[]): T[] {
    const rest = [...values];
    return values.flatMap(() => rest.splice(this.below(rest.length), 1));
  }
}

/** Deals shuffled values and starts again when all were dealt, so that no value waits for luck. */
export class Deck<T> {
  readonly #values: readonly T[];
  readonly #random: Random;
  #rest: T[] = [];

  constructor(values: readonly T[], random: Random) {
    this.#values = values;
    this.#random = random;
  }

  get size(): number {
    return this.#values.length;
  }

  deal(count: number): T[] {
    return Array.from({ length: count }, () => {
      if (this.#rest.length === 0) this.#rest = this.#random.shuffle(this.#values);
      const value = this.#rest.pop();
      if (value === undefined) throw new Error("a deck needs values");
      return value;
    });
  }
}
