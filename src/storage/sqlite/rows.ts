/** The rows of API keys, events and records of idempotency keys. */

import type { Database } from "bun:sqlite";
import type { StoredKey } from "../../credential/key.ts";
import { MAX_TIME_MS } from "../../duration.ts";
import { formatPosition, type Position, type TodoEvent } from "../../todo.ts";
import { decodeEvents } from "../records/event-codec.ts";
import type { IdempotencyRecord } from "../records/idempotency.ts";
import { type KeyRow, toStoredKey, toValues } from "../records/key-row.ts";
import { assertReadable, DamageError } from "./errors.ts";

/** Returns the API keys from the oldest to the newest. */
export const readStoredKeys = (database: Database): StoredKey[] =>
  database.query<KeyRow, []>("SELECT * FROM keys ORDER BY created_at, rowid").all().map(toStoredKey);

/** Inserts an API key, or changes the one with its id, and nothing else. */
export function putStoredKey(database: Database, key: StoredKey): void {
  database
    .query(
      `INSERT INTO keys VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE
       SET name = excluded.name, expires_at = excluded.expires_at, last_used_at = excluded.last_used_at`,
    )
    .run(...toValues(key));
}

/** Returns the CRC-32 of the other values of a row of `events` or `idempotency_records`. */
const crc = (...values: readonly (string | number | bigint)[]): number => Bun.hash.crc32(values.join(" "));

/** Rows of format 1 have no CRC. */
const isCrcRight = (stored: bigint | undefined, ...values: readonly (string | bigint)[]): boolean =>
  stored === undefined || Number(stored) === crc(...values);

/** Inserts the events of a batch, encoded with one line each. */
export function insertEvents(
  database: Database,
  lastSequence: number | bigint,
  epoch: string,
  events: string,
): void {
  database
    .query("INSERT INTO events VALUES (?, ?, ?, ?)")
    .run(lastSequence, epoch, events, crc(lastSequence, epoch, events));
}

export interface EventsRow {
  readonly last_sequence: bigint;
  readonly epoch: string;
  readonly events: string;
  readonly crc?: bigint;
}

/**
 * Returns the stored events up to the last change of a store, `maxEvents` or a few more. Throws a DamageError if a row is
 * invalid or missing.
 */
export function readEvents(database: Database, last: Position, maxEvents: number): TodoEvent[] {
  const events: TodoEvent[] = [];
  let end: number | undefined;
  const rows = database.query<EventsRow, [number]>(
    "SELECT * FROM events WHERE last_sequence > ? ORDER BY last_sequence",
  );
  for (const row of rows.iterate(last.sequence - maxEvents)) {
    const position = { epoch: row.epoch, sequence: Number(row.last_sequence) };
    if (!isCrcRight(row.crc, row.last_sequence, row.epoch, row.events))
      throw new DamageError(`the events before position ${position.sequence + 1} are damaged`);
    const decoded = assertReadable(() => decodeEvents(row.events, position));
    const start = position.sequence - decoded.length;
    if (end !== undefined && end !== start)
      throw new DamageError(`events before position ${start + 1} are missing`);
    end = position.sequence;
    for (const event of decoded) events.push(event);
  }
  const { position = last } = events.at(-1) ?? {};
  if (formatPosition(position) !== formatPosition(last))
    throw new DamageError(`events after position ${end} are missing`);
  return events;
}

interface RecordRow {
  readonly key_hash: string;
  readonly title_hash: string;
  readonly id: bigint;
  readonly created_at: bigint;
  readonly crc?: bigint;
}

/**
 * Yields the records of idempotency keys, the oldest first.
 * @param onDamaged called instead with the primary key of each damaged row
 */
export function* storedIdempotencyRecords(
  database: Database,
  onDamaged: (keyHash: string) => void = () => {},
  table = "idempotency_records",
): Generator<IdempotencyRecord> {
  const rows = database.query<RecordRow, []>(`SELECT * FROM ${table} ORDER BY created_at, id`);
  for (const { key_hash: keyHash, title_hash: titleHash, id, ...row } of rows.iterate()) {
    const createdAt = Number(row.created_at);
    const isRight = isCrcRight(row.crc, keyHash, titleHash, id, row.created_at);
    if (isRight && Math.abs(createdAt) <= MAX_TIME_MS) yield { keyHash, titleHash, id, createdAt };
    else onDamaged(keyHash);
  }
}

/** Inserts a record, or replaces the one of the same idempotency key. */
export function putIdempotencyRecord(database: Database, record: IdempotencyRecord): void {
  const { keyHash, titleHash, id, createdAt } = record;
  database
    .query("INSERT OR REPLACE INTO idempotency_records VALUES (?, ?, ?, ?, ?)")
    .run(keyHash, titleHash, id, createdAt, crc(keyHash, titleHash, id, createdAt));
}
