import type { Database, Statement } from "bun:sqlite";
import { type Counters, countersText, type Digest, DigestSum } from "./digest.ts";
import { DamageError } from "./errors.ts";

/** The only row of the table `store`. */
export interface StoreRow extends Counters {
  /** The digest of the contents; `null` until it is computed. */
  readonly checksum_a: bigint | number | null;
  readonly checksum_b: bigint | number | null;
}

export function storeRow(database: Database): StoreRow {
  return requireRow(database.query<StoreRow, []>("SELECT * FROM store").get());
}

function requireRow(row: StoreRow | null): StoreRow {
  if (row === null) throw new DamageError('its table "store" has no row');
  return row;
}

/** Returns the stored digest; `undefined` if it is not computed yet. */
export function storedDigest({ checksum_a, checksum_b }: StoreRow): Digest | undefined {
  if (checksum_a === null || checksum_b === null) return undefined;
  return { first: Number(checksum_a), second: Number(checksum_b) };
}

type NextCounters = Pick<StoreRow, "epoch" | "last_id" | "sequence">;

/** Updates the row of `store` in each transaction that changes the contents. Remembers it, because reading it costs time. */
export class StoreRowWriter {
  readonly #read: Statement<StoreRow, []>;
  readonly #write: Statement;
  #last: StoreRow | undefined;

  constructor(database: Database) {
    this.#read = database.query("SELECT * FROM store");
    // If another program has changed the row, this changes nothing.
    this.#write = database.query(
      `UPDATE store SET epoch = ?, last_id = ?, sequence = ?, transactions = ?, checksum_a = ?, checksum_b = ?
       WHERE id = ? AND sequence = ? AND transactions = ? AND checksum_a IS ?`,
    );
  }

  /**
   * Counts the transaction and updates the digest. Returns the number of transactions.
   * @param advance returns the counters after the transaction, or throws for an unexpected row
   * @param changes the sum of the added rows, minus that of the removed rows
   */
  update(advance: (row: StoreRow) => NextCounters, changes: Digest): number {
    const last = this.#last;
    const row =
      (last && this.#updateFrom(last, advance(last), changes)) ?? this.#updateStored(advance, changes);
    this.#last = row;
    return Number(row.transactions);
  }

  /** Reads the row again in the next transaction, because the last one was rolled back. */
  forget(): void {
    this.#last = undefined;
  }

  #updateStored(advance: (row: StoreRow) => NextCounters, changes: Digest): StoreRow {
    const stored = requireRow(this.#read.get());
    return requireRow(this.#updateFrom(stored, advance(stored), changes) ?? null);
  }

  #updateFrom(before: StoreRow, next: NextCounters, changes: Digest): StoreRow | undefined {
    const { id, transactions, checksum_a } = before;
    const { epoch, last_id, sequence } = next;
    const after: Counters = { id, epoch, last_id, sequence, transactions: transactions + 1n };
    const digest = digestAfter(before, after, changes);
    const [first, second] = [digest?.first ?? null, digest?.second ?? null];
    const result = this.#write.run(
      epoch,
      last_id,
      sequence,
      after.transactions,
      first,
      second,
      id,
      before.sequence,
      transactions,
      checksum_a,
    );
    return result.changes === 0 ? undefined : { ...after, checksum_a: first, checksum_b: second };
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
