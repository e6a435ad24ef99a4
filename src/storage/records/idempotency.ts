import { hash } from "node:crypto";
import { ServiceError } from "../../error.ts";
import type { TodoId } from "../../todo.ts";

/** How long a record is stored, in milliseconds. */
export const RETENTION_MS = 24 * 60 * 60 * 1000;

/** Which to-do a request with an Idempotency-Key created. Holds digests of the client's strings, because they are short. */
export interface IdempotencyRecord {
  /** SHA-256, in base64url, of the idempotency key. */
  readonly keyHash: string;
  /** SHA-256, in base64url, of the title. */
  readonly titleHash: string;
  readonly id: TodoId;
  /** Milliseconds since 1970. */
  readonly madeAt: number;
}

export function createRecord(
  idempotencyKey: string,
  title: string,
  id: TodoId,
  madeAt: number,
): IdempotencyRecord {
  return { keyHash: digest(idempotencyKey), titleHash: digest(title), id, madeAt };
}

/** A record in the list from the oldest to the youngest. */
interface Entry {
  readonly record: IdempotencyRecord;
  next: Entry | undefined;
}

/** The records of the last 24 hours, a limited number of them: beyond the limit, a new one evicts the oldest. */
export class IdempotencyRecords {
  /** By the digest of the key. The oldest comes from the list: a Map's iterator passes all deleted entries again. */
  readonly #entries = new Map<string, Entry>();
  #oldest: Entry | undefined;
  #youngest: Entry | undefined;
  readonly #max: number;
  readonly #now: () => number;

  constructor(max: number, now: () => number) {
    this.#max = max;
    this.#now = now;
  }

  /**
   * Returns the id of the to-do that this key made with this title; `undefined` for a new key. Throws
   * `idempotency_key_reused` when the key made a to-do with another title.
   * @param newer records, by the digest of their key, that are about to be added
   */
  find(
    idempotencyKey: string,
    title: string,
    newer: ReadonlyMap<string, IdempotencyRecord> = new Map(),
  ): TodoId | undefined {
    const keyHash = digest(idempotencyKey);
    const record = newer.get(keyHash) ?? this.#entries.get(keyHash)?.record;
    if (record === undefined || this.#isExpired(record)) return undefined;
    if (record.titleHash !== digest(title)) throw idempotencyKeyReused();
    return record.id;
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

  #isExpired({ madeAt }: IdempotencyRecord): boolean {
    return madeAt <= this.#now() - RETENTION_MS;
  }
}

/** Returns the SHA-256 of a text, in base64url. */
export const digest = (text: string): string => hash("sha256", text, "base64url");

export const idempotencyKeyReused = (): ServiceError =>
  new ServiceError("idempotency_key_reused", { detail: "Send each to-do with its own Idempotency-Key." });
