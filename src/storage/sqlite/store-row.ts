import type { Database } from "bun:sqlite";
import { Checksum, type Counters, countersText } from "./checksum.ts";
import { DamageError } from "./errors.ts";

/** The only row of the table `store`. */
export interface StoreRow extends Counters {
  /** The checksum of the contents; `null` until it is computed. */
  readonly checksum_a: bigint | number | null;
  readonly checksum_b: bigint | number | null;
}

export function storeRow(database: Database): StoreRow {
  const row = database.query<StoreRow, []>("SELECT * FROM store").get();
  if (row === null) throw new DamageError('its table "store" has no row');
  return row;
}

/** Returns the stored checksum; `undefined` if it is not computed yet. */
export function storedChecksum({ checksum_a, checksum_b }: StoreRow): Checksum | undefined {
  if (checksum_a === null || checksum_b === null) return undefined;
  return new Checksum(Number(checksum_a), Number(checksum_b));
}

/**
 * Updates the row in a transaction that changes the contents. Returns the number of transactions, this one included.
 * @param advance returns the counters that change, or throws for an unexpected row
 * @param changes the sum of the added rows, minus that of the removed rows
 */
export function updateStoreRow(
  database: Database,
  changes: Checksum,
  advance: (row: StoreRow) => Partial<Counters> = () => ({}),
): number {
  const before = storeRow(database);
  const after = { ...before, ...advance(before), transactions: before.transactions + 1n };
  const checksum = storedChecksum(before);
  checksum?.subtract(countersText(before));
  checksum?.add(countersText(after));
  checksum?.merge(changes);
  const { epoch, last_id, sequence, transactions } = after;
  database
    .query(
      "UPDATE store SET epoch = ?, last_id = ?, sequence = ?, transactions = ?, checksum_a = ?, checksum_b = ?",
    )
    .run(epoch, last_id, sequence, transactions, checksum?.first ?? null, checksum?.second ?? null);
  return Number(transactions);
}
