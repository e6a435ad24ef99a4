import type { StoredKey } from "../../credential/key.ts";
import { madeWithText } from "../records/key-row.ts";

/** The counters of a store, named as their columns. */
export interface Counters {
  /** Identifies the store. A store that is imported, restored or has accepted a loss is another one. */
  readonly id: string;
  /** The epoch and the sequence number of the last change to a to-do. */
  readonly epoch: string;
  readonly sequence: bigint;
  /** The greatest id ever assigned. */
  readonly last_id: bigint;
  /** The number of committed transactions, changes to API keys included. */
  readonly transactions: bigint;
}

/**
 * Sums the hashes of rows in two unsigned 32-bit numbers. The order of the rows does not matter. Rows are texts that contain
 * their kind and id, so that values that two rows exchanged change the sums. The text of a to-do is its JSON.
 */
export class Checksum {
  first: number;
  second: number;

  constructor(first = 0, second = 0) {
    this.first = first;
    this.second = second;
  }

  equals({ first, second }: Checksum): boolean {
    return first === this.first && second === this.second;
  }

  add(row: string | Uint8Array): void {
    const hash = Bun.hash.xxHash32(row);
    this.first = (this.first + hash) >>> 0;
    this.second = (this.second + mix(hash)) >>> 0;
  }

  subtract(row: string): void {
    const hash = Bun.hash.xxHash32(row);
    this.first = (this.first - hash) >>> 0;
    this.second = (this.second - mix(hash)) >>> 0;
  }

  /** Adds the rows of another checksum. */
  merge({ first, second }: Checksum): void {
    this.first = (this.first + first) >>> 0;
    this.second = (this.second + second) >>> 0;
  }
}

/** Mixes the bits of a hash (the finalizer of MurmurHash3), so that rows that cancel in one sum do not cancel in the other. */
function mix(hash: number): number {
  const once = Math.imul(hash ^ (hash >>> 16), 0x85ebca6b);
  const twice = Math.imul(once ^ (once >>> 13), 0xc2b2ae35);
  return twice ^ (twice >>> 16);
}

/** Returns the text of an API key. It omits the last use, which is informational and changes often. */
export function keyText(key: StoredKey): string {
  const { id, name, scope, tokenHash, createdAt, lifetime } = key;
  const hash = Buffer.from(tokenHash).toString("hex");
  // Each use changes the expiry of a key with a parent.
  const expiry = madeWithText(key) ?? key.expiresAt ?? null;
  return `key ${JSON.stringify([id, name, hash, createdAt, expiry, lifetime ?? null, scope])}`;
}

/** Returns the text of the counters. */
export function countersText({ id, epoch, last_id, sequence, transactions }: Counters): string {
  return `counters ${JSON.stringify([id, epoch, `${last_id}`, `${sequence}`, `${transactions}`])}`;
}
