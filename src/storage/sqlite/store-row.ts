import type { Database } from "bun:sqlite";
import { Checksum, type Counters, countersText } from "./checksum.ts";
import { DamageError } from "./errors.ts";

/** The only row of the table `store`. */
export interface StoreRow extends Counters {
  /** The checksum of the contents. */
  readonly checksum_a: bigint;
  readonly checksum_b: bigint;
}

/** Half of what a number holds exactly, so that an accepted store has room for as many changes. */
const MAX_COUNT = 2n ** 52n;

/** Throws a DamageError unless there is one row with possible counters. */
export function storeRow(database: Database): StoreRow {
  const [row, ...others] = database.query<StoreRow, []>("SELECT * FROM store LIMIT 2").all();
  if (row === undefined) throw new DamageError('its table "store" has no row');
  if (others.length > 0) throw new DamageError('its table "store" has more than one row');
  const { last_id, sequence, transactions } = row;
  const counts = [sequence, transactions];
  if (last_id < 0n || counts.some((count) => count < 0n || count > MAX_COUNT))
    throw new DamageError("a counter is out of range");
  return row;
}

/** Returns the stored checksum. */
export const storedChecksum = ({ checksum_a, checksum_b }: StoreRow): Checksum =>
  new Checksum(Number(checksum_a), Number(checksum_b));

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
  checksum.subtract(countersText(before));
  checksum.add(countersText(after));
  checksum.merge(changes);
  const { epoch, last_id, sequence, transactions } = after;
  database
    .query(
      "UPDATE store SET epoch = ?, last_id = ?, sequence = ?, transactions = ?, checksum_a = ?, checksum_b = ?",
    )
    .run(epoch, last_id, sequence, transactions, checksum.first, checksum.second);
  return Number(transactions);
}
