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

/** A record in the list from the oldest to the youngest. */
interface Entry {
  readonly record: IdempotencyRecord;
  next: Entry | undefined;
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
  /** By the SHA-256 of the key. The oldest comes from the list: a Map's iterator passes all deleted entries again. */
  readonly #entries = new Map<string, Entry>();
  #oldest: Entry | undefined;
  #youngest: Entry | undefined;
  readonly #max: number;
  readonly #now: () => number;

  constructor(max: number, now: () => number) {
    this.#max = max;
    this.#now = now;
  }

  /** Returns the record of a key, unless it has expired. */
  find(keyHash: string): IdempotencyRecord | undefined {
    const record = this.#entries.get(keyHash)?.record;
    return record === undefined || this.#isExpired(record) ? undefined : record;
  }

  /** Returns the records from the oldest to the youngest. */
  list(): IdempotencyRecord[] {
    return [...this.#entries.values()].map(({ record }) => record);
  }

  /** Adds a record that is stored already, younger than the others. Removes none by age, because the clock may be wrong. */
  load(record: IdempotencyRecord): void {
    const entry: Entry = { record, next: undefined };
    this.#entries.set(record.keyHash, entry);
    if (this.#youngest === undefined) this.#oldest = entry;
    else this.#youngest.next = entry;
    this.#youngest = entry;
  }

  /** Adds the record of a new key, and removes the oldest records: the expired ones step by step, and those above the limit. */
  add(record: IdempotencyRecord): RemovedRecords {
    this.load(record);
    const removed = { expired: [] as IdempotencyRecord[], evicted: [] as IdempotencyRecord[] };
    for (let oldest = this.#oldest; oldest !== undefined && oldest !== this.#youngest; oldest = oldest.next) {
      const { record: old } = oldest;
      // The key of an expired record may have been used again.
      const isCurrent = this.#entries.get(old.keyHash) === oldest;
      const isExpired = this.#isExpired(old);
      const isDue = isExpired && removed.expired.length < MAX_EXPIRED_PER_RECORD;
      if (isCurrent && !isDue && this.#entries.size <= this.#max) break;
      this.#oldest = oldest.next;
      if (!isCurrent) continue;
      this.#entries.delete(old.keyHash);
      removed[isExpired ? "expired" : "evicted"].push(old);
    }
    return removed;
  }

  #isExpired({ createdAt }: IdempotencyRecord): boolean {
    return createdAt <= this.#now() - RETENTION_MS;
  }
}

/** Returns the SHA-256 of a text, in base64url. */
export const sha256 = (text: string): string => hash("sha256", text, "base64url");

export const idempotencyKeyReused = (): ServiceError =>
  new ServiceError("idempotency_key_reused", { detail: "Send each to-do with its own Idempotency-Key." });
