import { hash } from "node:crypto";
import { Failure } from "../failure.ts";
import type { TodoId } from "../todo.ts";

/** How long a receipt is kept, in milliseconds. */
export const KEPT_FOR = 24 * 60 * 60 * 1000;

/** Which to-do a request with an Idempotency-Key made. Of what a client chose, digests: they are short. */
export interface Receipt {
  /** SHA-256, in base64url, of the idempotency key. */
  readonly keyHash: string;
  /** SHA-256, in base64url, of the title. */
  readonly titleHash: string;
  readonly id: TodoId;
  /** Milliseconds since 1970. */
  readonly madeAt: number;
}

export function receiptOf(idempotencyKey: string, title: string, id: TodoId, madeAt: number): Receipt {
  return { keyHash: digest(idempotencyKey), titleHash: digest(title), id, madeAt };
}

/** The receipts of the last 24 hours. */
export class Receipts {
  /** By the digest of the key, the oldest first. */
  readonly #receipts = new Map<string, Receipt>();
  readonly #most: number;
  readonly #now: () => number;

  constructor(most: number, now: () => number) {
    this.#most = most;
    this.#now = now;
  }

  /**
   * The to-do that this key made with this title, if any. Throws `idempotency_key_reused` when it came with another
   * title, `store_full` when there is no room for one more key.
   * @param newer receipts by the digest of their key that are about to be added
   */
  find(
    idempotencyKey: string,
    title: string,
    newer: ReadonlyMap<string, Receipt> = new Map(),
  ): TodoId | undefined {
    this.#forget();
    const keyHash = digest(idempotencyKey);
    const receipt = newer.get(keyHash) ?? this.#receipts.get(keyHash);
    if (receipt === undefined) {
      if (this.#receipts.size + newer.size >= this.#most) throw noRoomForKey(this.#most);
      return undefined;
    }
    if (receipt.titleHash !== digest(title)) throw keyReused();
    return receipt.id;
  }

  add(receipt: Receipt): void {
    this.#receipts.set(receipt.keyHash, receipt);
  }

  #forget(): void {
    const now = this.#now();
    for (const [keyHash, { madeAt }] of this.#receipts) {
      if (madeAt <= now - KEPT_FOR) this.#receipts.delete(keyHash);
      // One of the future, from before the clock was set back, says nothing of those behind it.
      else if (madeAt <= now) return;
    }
  }
}

/** SHA-256, in base64url. */
export const digest = (text: string): string => hash("sha256", text, "base64url");

export const keyReused = (): Failure =>
  new Failure("idempotency_key_reused", { detail: "Send each to-do under a key of its own." });

export const noRoomForKey = (most: number): Failure =>
  new Failure("store_full", {
    detail: `It remembers its ${most} idempotency keys of 24 hours: send none, or try later.`,
  });
