import type { Database, Statement } from "bun:sqlite";
import { DamageError } from "./damage.ts";
import { type Counters, countersText, type Digest, DigestSum } from "./digest.ts";

/** The only row of the table `store`. */
export interface StoreRow extends Counters {
  /** The digest of the contents; `null` until it is computed, and absent before the migration that added it. */
  readonly digest_a?: bigint | null;
  readonly digest_b?: bigint | null;
}

export function storeRow(database: Database): StoreRow {
  return requireRow(database.query<StoreRow, []>("SELECT * FROM store").get());
}

function requireRow(row: StoreRow | null): StoreRow {
  if (row === null) throw new DamageError('its table "store" has no row');
  return row;
}

/** Returns the stored digest; `undefined` if it is not computed yet. */
export function storedDigest({ digest_a, digest_b }: StoreRow): Digest | undefined {
  if (typeof digest_a !== "bigint" || typeof digest_b !== "bigint") return undefined;
  return { first: Number(digest_a), second: Number(digest_b) };
}

/** Updates the row of `store` in each transaction that changes the contents. */
export class StoreRowWriter {
  readonly #read: Statement<StoreRow, []>;
  readonly #write: Statement;

  constructor(database: Database) {
    this.#read = database.query("SELECT * FROM store");
    this.#write = database.query(
      "UPDATE store SET last_id = ?, n = ?, transactions = ?, digest_a = ?, digest_b = ?",
    );
  }

  read(): StoreRow {
    return requireRow(this.#read.get());
  }

  /**
   * Counts the transaction and updates the digest. Returns the number of transactions.
   * @param changes the sum of the added rows, minus that of the removed rows
   */
  write(before: StoreRow, { last_id, n }: Pick<StoreRow, "last_id" | "n">, changes: Digest): number {
    const after: Counters = { epoch: before.epoch, last_id, n, transactions: before.transactions + 1n };
    const digest = digestAfter(before, after, changes);
    this.#write.run(last_id, n, after.transactions, digest?.first ?? null, digest?.second ?? null);
    return Number(after.transactions);
  }
}

function digestAfter(before: StoreRow, after: Counters, changes: Digest): Digest | undefined {
  const stored = storedDigest(before);
  if (stored === undefined) return undefined;
  const sum = new DigestSum(stored);
  sum.subtract(countersText(before));
  sum.add(countersText(after));
  sum.merge(changes);
  return sum.value;
}
