import { hash } from "node:crypto";
import { ServiceError } from "../../error.ts";
import type { TodoId } from "../../todo.ts";

/** How long a record is stored, in milliseconds. */
export const RETENTION_MS = 24 * 60 * 60 * 1000;

/** Which to-do a request with an Idempotency-Key created. Stores hashes of the client's strings, because they are short. */
export interface IdempotencyRecord {
  /** SHA-256, in base64url, of the idempotency key. */
  readonly keyHash: string;
  /** SHA-256, in base64url, of the title. */
  readonly titleHash: string;
  readonly id: TodoId;
  /** Milliseconds since 1970. */
  readonly createdAt: number;
}

/** A new record removes at most this many expired ones, so that a clock that jumps forward and back removes few. */
const MAX_EXPIRED_PER_RECORD = 2;

/** The records that a new one has removed. */
export interface RemovedRecords {
  readonly expired: readonly IdempotencyRecord[];
  /** Those that are younger than 24 hours. */
  readonly evicted: readonly IdempotencyRecord[];
}

/**
 * The records of the last 24 hours and some older ones, a limited number of them: beyond the limit, a new one evicts the
 * oldest.
 */
export class IdempotencyRecords {
  /** By the SHA-256 of the key, from the oldest to the youngest. */
  readonly #records = new Map<string, IdempotencyRecord>();
  /** Goes on where it was, because a new iterator passes all deleted entries again. */
  readonly #byAge = this.#records.values();
  #oldest: IdempotencyRecord | undefined;
  readonly #max: number;
  readonly #now: () => number;

  constructor(max: number, now: () => number) {
    this.#max = max;
    this.#now = now;
  }

  /** Returns the record of a key, unless it has expired. */
  find(keyHash: string): IdempotencyRecord | undefined {
    const record = this.#records.get(keyHash);
    return record === undefined || this.#isExpired(record) ? undefined : record;
  }

  /** Returns the records from the oldest to the youngest. */
  list(): IdempotencyRecord[] {
    return [...this.#records.values()];
  }

  /** Adds a record that is stored already, younger than the others. Removes none by age, because the clock may be wrong. */
  load(record: IdempotencyRecord): void {
    // The key of an expired record may be used again.
    this.#records.delete(record.keyHash);
    this.#records.set(record.keyHash, record);
  }

  /** Adds the record of a new key, and removes the oldest records: the expired ones step by step, and those above the limit. */
  add(record: IdempotencyRecord): RemovedRecords {
    this.load(record);
    const removed = { expired: [] as IdempotencyRecord[], evicted: [] as IdempotencyRecord[] };
    for (;;) {
      this.#oldest ??= this.#byAge.next().value;
      const old = this.#oldest;
      if (old === undefined || old === record) return removed;
      if (this.#records.get(old.keyHash) === old) {
        const isExpired = this.#isExpired(old);
        const isDue = isExpired && removed.expired.length < MAX_EXPIRED_PER_RECORD;
        if (!isDue && this.#records.size <= this.#max) return removed;
        this.#records.delete(old.keyHash);
        removed[isExpired ? "expired" : "evicted"].push(old);
      }
      this.#oldest = undefined;
    }
  }

  #isExpired({ createdAt }: IdempotencyRecord): boolean {
    return createdAt <= this.#now() - RETENTION_MS;
  }
}

/** Returns the SHA-256 of a text, in base64url. */
export const sha256 = (text: string): string => hash("sha256", text, "base64url");

export const idempotencyKeyReused = (): ServiceError =>
  new ServiceError("idempotency_key_reused", { detail: "Send each to-do with its own Idempotency-Key." });
