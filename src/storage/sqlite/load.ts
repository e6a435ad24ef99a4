import type { Database } from "bun:sqlite";
import { ChangeFeed } from "../../change-feed.ts";
import type { Position, TodoId } from "../../todo.ts";
import { decodeEvents } from "../records/event-codec.ts";
import { type IdempotencyRecord, IdempotencyRecords } from "../records/idempotency.ts";
import type { DEFAULTS } from "../store.ts";
import { Table } from "../table/table.ts";

/** An SQL expression for the JSON of a row of `todos`. */
export const TODO_JSON = `'{"id":' || id || ',"title":' || title || ',"done":' || iif(done, 'true', 'false') || '}'`;

/** The contents of a file. */
export interface State {
  readonly epoch: string;
  readonly table: Table;
  readonly feed: ChangeFeed;
  readonly idempotencyRecords: IdempotencyRecords;
  readonly lastId: TodoId;
  readonly sequence: number;
}

/** Loads the contents of a file into memory. */
export function load(database: Database, { maxTodos, maxEvents, now }: typeof DEFAULTS): State {
  const { epoch, last_id, n } = storeRow(database);
  const table = new Table();
  const todos = database.query<{ id: bigint; json: string }, []>(
    `SELECT id, ${TODO_JSON} AS json FROM todos ORDER BY id`,
  );
  for (const { id, json } of todos.iterate()) table.append(id, json);
  const idempotencyRecords = new IdempotencyRecords(maxTodos, now);
  for (const record of storedIdempotencyRecords(database)) idempotencyRecords.add(record);
  const sequence = Number(n);
  const feed = loadFeed(database, { epoch, sequence }, maxEvents);
  return { epoch, table, feed, idempotencyRecords, lastId: last_id, sequence };
}

/** The only row of the table `store`. */
export interface StoreRow {
  readonly epoch: string;
  readonly last_id: bigint;
  readonly n: bigint;
  /** The number of committed transactions, changes to API keys included. */
  readonly transactions: bigint;
  /** The digest of the contents; `null` until it is computed. */
  readonly digest_a: bigint | null;
  readonly digest_b: bigint | null;
}

export function storeRow(database: Database): StoreRow {
  const row = database.query<StoreRow, []>("SELECT * FROM store").get();
  if (row === null) throw new Error('its table "store" has no row: restore a backup');
  return row;
}

function* storedIdempotencyRecords(database: Database): Generator<IdempotencyRecord> {
  const rows = database.query<{ key_hash: string; title_hash: string; id: bigint; made_at: bigint }, []>(
    "SELECT * FROM receipts ORDER BY made_at, id",
  );
  for (const { key_hash, title_hash, id, made_at } of rows.iterate()) {
    yield { keyHash: key_hash, titleHash: title_hash, id, madeAt: Number(made_at) };
  }
}

function loadFeed(database: Database, last: Position, maxEvents: number): ChangeFeed {
  const rows = database
    .query<{ events: string }, [number]>("SELECT events FROM events WHERE last_n > ? ORDER BY last_n")
    .all(last.sequence - maxEvents);
  const lines = rows.map(({ events }) => events).join("\n");
  const events = lines === "" ? [] : decodeEvents(lines, last);
  const feed = new ChangeFeed(maxEvents, last.sequence - events.length);
  for (const event of events) feed.publish(event);
  return feed;
}
