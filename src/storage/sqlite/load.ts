import { type Database, SQLiteError } from "bun:sqlite";
import { ChangeFeed } from "../../change-feed.ts";
import { errorMessage } from "../../error-message.ts";
import type { Position, TodoId } from "../../todo.ts";
import type { StoredEvent } from "../records/event-codec.ts";
import { type IdempotencyRecord, IdempotencyRecords } from "../records/idempotency.ts";
import type { DEFAULTS } from "../store.ts";
import { Table } from "../table/table.ts";
import {
  assertValidTodos,
  matchesStoredDigest,
  otherTexts,
  readEvents,
  storeDigest,
  todoRows,
} from "./contents.ts";
import { contentsDiffer, DamageError } from "./damage.ts";
import { DigestSum } from "./digest.ts";
import { storeRow } from "./store-row.ts";

/** The contents of a file. */
export interface State {
  readonly epoch: string;
  readonly table: Table;
  readonly feed: ChangeFeed;
  readonly idempotencyRecords: IdempotencyRecords;
  readonly lastId: TodoId;
  readonly sequence: number;
  readonly transactions: number;
  /** The newest stored time in milliseconds since 1970; 0 if there is none. */
  readonly newestTime: number;
}

/**
 * Loads the contents of a file into memory. Computes their digest and compares it with the stored one, or stores it if
 * there is none. Throws a DamageError if they differ.
 */
export function load(database: Database, options: typeof DEFAULTS): State {
  // Otherwise a command that changes API keys could commit while the digest is computed.
  const snapshot = database.transaction(() => loadSnapshot(database, options));
  try {
    return snapshot.immediate();
  } catch (cause) {
    if (cause instanceof SQLiteError || cause instanceof DamageError) throw cause;
    // Values that this program never writes fail in many ways.
    throw new DamageError(errorMessage(cause), { cause });
  }
}

function loadSnapshot(database: Database, options: typeof DEFAULTS): State {
  const { epoch, last_id, n, transactions } = storeRow(database);
  const table = new Table();
  const sum = new DigestSum();
  for (const { id, json } of todoRows(database)) {
    sum.add(json);
    table.append(id, json);
  }
  for (const text of otherTexts(database)) sum.add(text);
  const matches = matchesStoredDigest(database, sum.value);
  if (matches === false) throw contentsDiffer();
  if (matches === undefined) {
    assertValidTodos(database);
    storeDigest(database, sum.value);
  }
  const idempotencyRecords = new IdempotencyRecords(options.maxTodos, options.now);
  for (const record of storedIdempotencyRecords(database)) idempotencyRecords.add(record);
  const sequence = Number(n);
  const feed = loadFeed(database, { epoch, sequence }, options);
  return {
    epoch,
    table,
    feed,
    idempotencyRecords,
    lastId: last_id,
    sequence,
    transactions: Number(transactions),
    newestTime: newestTime(database),
  };
}

function newestTime(database: Database): number {
  const row = database
    .query<{ newest: bigint | null }, []>(
      `SELECT max(time) AS newest FROM (
         SELECT max(made_at) AS time FROM receipts
         UNION ALL SELECT max(created_at) FROM keys
         UNION ALL SELECT max(last_used_at) FROM keys
       )`,
    )
    .get();
  return Number(row?.newest ?? 0n);
}

function* storedIdempotencyRecords(database: Database): Generator<IdempotencyRecord> {
  const rows = database.query<{ key_hash: string; title_hash: string; id: bigint; made_at: bigint }, []>(
    "SELECT * FROM receipts ORDER BY made_at, id",
  );
  for (const { key_hash, title_hash, id, made_at } of rows.iterate()) {
    yield { keyHash: key_hash, titleHash: title_hash, id, madeAt: Number(made_at) };
  }
}

function loadFeed(
  database: Database,
  last: Position,
  { maxEvents, onWarning }: Pick<typeof DEFAULTS, "maxEvents" | "onWarning">,
): ChangeFeed {
  let events: readonly StoredEvent[] = [];
  try {
    events = readEvents(database, last, maxEvents);
  } catch (error) {
    if (!(error instanceof DamageError)) throw error;
    database.run("DELETE FROM events");
    onWarning(
      `all stored events were deleted, because ${error.message}: clients that reconnect load the list again`,
    );
  }
  const feed = new ChangeFeed(maxEvents, last.sequence - events.length);
  for (const event of events) feed.publish(event);
  return feed;
}
