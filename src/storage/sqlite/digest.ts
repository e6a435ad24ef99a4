import type { StoredKey } from "../../credential/key.ts";

/** The sums that a store keeps: two unsigned 32-bit numbers. */
export interface Digest {
  readonly first: number;
  readonly second: number;
}

/** The counters of a store, named as their columns. */
export interface Counters {
  readonly epoch: string;
  /** The greatest id ever assigned. */
  readonly last_id: bigint;
  /** The sequence number of the last change to a to-do. */
  readonly n: bigint;
  /** The number of committed transactions, changes to API keys included. */
  readonly transactions: bigint;
}

/**
 * Sums the hashes of rows. The order of the rows does not matter. Rows are texts that contain their kind and id, so that
 * values that two rows exchanged change the sums. The text of a to-do is its JSON.
 */
export class DigestSum {
  #first: number;
  #second: number;

  constructor({ first, second }: Digest = { first: 0, second: 0 }) {
    this.#first = first;
    this.#second = second;
  }

  get value(): Digest {
    return { first: this.#first, second: this.#second };
  }

  add(row: string): void {
    const hash = Bun.hash.xxHash32(row);
    this.#first = (this.#first + hash) >>> 0;
    this.#second = (this.#second + mix(hash)) >>> 0;
  }

  /** Adds the rows of another sum. */
  merge({ first, second }: Digest): void {
    this.#first = (this.#first + first) >>> 0;
    this.#second = (this.#second + second) >>> 0;
  }

  subtract(row: string): void {
    const hash = Bun.hash.xxHash32(row);
    this.#first = (this.#first - hash) >>> 0;
    this.#second = (this.#second - mix(hash)) >>> 0;
  }
}

/** Mixes the bits of a hash (the finalizer of MurmurHash3), so that rows that cancel in one sum do not cancel in the other. */
function mix(hash: number): number {
  const once = Math.imul(hash ^ (hash >>> 16), 0x85ebca6b);
  const twice = Math.imul(once ^ (once >>> 13), 0xc2b2ae35);
  return twice ^ (twice >>> 16);
}

/** Returns the text of an API key. It omits the last use, which is informational and changes often. */
export function keyText({ id, name, scope, tokenHash, createdAt, expiresAt, lifetime }: StoredKey): string {
  const hash = Buffer.from(tokenHash).toString("hex");
  return `key ${JSON.stringify([id, name, hash, createdAt, expiresAt ?? null, lifetime ?? null, scope])}`;
}

/** Returns the text of the counters. */
export function countersText({ epoch, last_id, n, transactions }: Counters): string {
  return `counters [${JSON.stringify(epoch)},"${last_id}","${n}","${transactions}"]`;
}
