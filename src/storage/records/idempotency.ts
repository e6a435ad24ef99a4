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

/** The records of the last 24 hours, a limited number of them: beyond the limit, a new one evicts the oldest. */
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

  /** Returns the records from the oldest to the youngest, without expired ones. */
  list(): IdempotencyRecord[] {
    return [...this.#entries.values()].flatMap(({ record }) => (this.#isExpired(record) ? [] : record));
  }

  /** Adds the record of a new key; returns the record that it evicts, if any. */
  add(record: IdempotencyRecord): IdempotencyRecord | undefined {
    const entry: Entry = { record, next: undefined };
    this.#entries.set(record.keyHash, entry);
    if (this.#youngest === undefined) this.#oldest = entry;
    else this.#youngest.next = entry;
    this.#youngest = entry;

    for (let oldest = this.#oldest; oldest !== undefined && oldest !== entry; oldest = oldest.next) {
      const { record: old } = oldest;
      // The key of an expired record may have been used again.
      const isCurrent = this.#entries.get(old.keyHash) === oldest;
      const isExpired = this.#isExpired(old);
      if (isCurrent && !isExpired && this.#entries.size <= this.#max) return undefined;
      this.#oldest = oldest.next;
      if (isCurrent) this.#entries.delete(old.keyHash);
      if (isCurrent && !isExpired) return old;
    }
    return undefined;
  }

  #isExpired({ createdAt }: IdempotencyRecord): boolean {
    return createdAt <= this.#now() - RETENTION_MS;
  }
}

/** Returns the SHA-256 of a text, in base64url. */
export const sha256 = (text: string): string => hash("sha256", text, "base64url");

export const idempotencyKeyReused = (): ServiceError =>
  new ServiceError("idempotency_key_reused", { detail: "Send each to-do with its own Idempotency-Key." });
