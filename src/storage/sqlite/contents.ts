import type { Database } from "bun:sqlite";
import { errorMessage } from "../../error-message.ts";
import { formatPosition, type Position } from "../../todo.ts";
import { decodeEvents, type StoredEvent } from "../records/event-codec.ts";
import type { IdempotencyRecord } from "../records/idempotency.ts";
import { type KeyRow, toStoredKey } from "../records/key-row.ts";
import { countersText, type Digest, DigestSum, keyText } from "./digest.ts";
import { DamageError, isDamage } from "./errors.ts";
import { storedDigest, storeRow } from "./store-row.ts";

/** An SQL expression for the JSON of a row of `todos`. */
export const TODO_JSON = `'{"id":' || id || ',"title":' || title || ',"done":' || iif(done, 'true', 'false') || '}'`;

/** Yields all to-dos by ascending id. */
export function todoRows(database: Database): Iterable<{ readonly id: bigint; readonly json: string }> {
  return database
    .query<{ id: bigint; json: string }, []>(`SELECT id, ${TODO_JSON} AS json FROM todos ORDER BY id`)
    .iterate();
}

/** Yields the texts of all rows of the digest except the to-dos. */
export function* otherTexts(database: Database): Generator<string> {
  for (const key of database.query<KeyRow, []>("SELECT * FROM keys").iterate())
    yield keyText(toStoredKey(key));
  yield countersText(storeRow(database));
}

/** Returns the digest of the current contents. */
export function computeDigest(database: Database): Digest {
  const sum = new DigestSum();
  for (const { json } of todoRows(database)) sum.add(json);
  for (const text of otherTexts(database)) sum.add(text);
  return sum.value;
}

export function storeDigest(database: Database, { first, second }: Digest): void {
  database.query("UPDATE store SET checksum_a = ?, checksum_b = ?").run(first, second);
}

/** Returns what PRAGMA integrity_check finds; an empty array for a sound file. */
export function findStructuralDamage(database: Database): string[] {
  try {
    const found = database.query<{ integrity_check: string }, []>("PRAGMA integrity_check").all();
    return found.flatMap(({ integrity_check: line }) => (line === "ok" ? [] : line.split("\n")));
  } catch (error) {
    if (isDamage(error)) return [errorMessage(error)];
    throw error;
  }
}

/** Throws a DamageError if to-dos are not what this program writes. */
export function assertValidTodos(database: Database): void {
  const row = database
    .query<{ invalid: bigint }, [bigint]>(
      `SELECT count(*) AS invalid FROM todos
       WHERE id NOT BETWEEN 1 AND ? OR NOT json_valid(title) OR title NOT LIKE '"%' OR done NOT IN (0, 1)`,
    )
    .get(storeRow(database).last_id);
  if (row?.invalid !== 0n) throw new DamageError(`${row?.invalid} of its to-dos are invalid`);
}

const EPOCH = /^[0-9a-f]{16}$/;

/**
 * Returns the stored events up to the last change of a store, `maxEvents` or a few more. Throws a DamageError if a row is
 * invalid or missing.
 */
export function readEvents(database: Database, last: Position, maxEvents: number): StoredEvent[] {
  const events: StoredEvent[] = [];
  let end: number | undefined;
  const rows = database.query<{ last_sequence: bigint; epoch: string; events: string }, [number]>(
    "SELECT * FROM events WHERE last_sequence > ? ORDER BY last_sequence",
  );
  for (const row of rows.iterate(last.sequence - maxEvents)) {
    const position = { epoch: row.epoch, sequence: Number(row.last_sequence) };
    if (!EPOCH.test(row.epoch))
      throw new DamageError(`the epoch at position ${position.sequence} is invalid`);
    const decoded = decodeRow(row.events, position);
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

function decodeRow(lines: string, last: Position): StoredEvent[] {
  try {
    return decodeEvents(lines, last);
  } catch (cause) {
    throw new DamageError(errorMessage(cause), { cause });
  }
}

/** Returns whether the contents have the stored digest; `undefined` if no digest is stored. */
export function matchesStoredDigest(database: Database, computed: Digest): boolean | undefined {
  const stored = storedDigest(storeRow(database));
  return stored && stored.first === computed.first && stored.second === computed.second;
}

/** Yields the records of idempotency keys, the oldest first. */
export function* storedIdempotencyRecords(database: Database): Generator<IdempotencyRecord> {
  const rows = database.query<{ key_hash: string; title_hash: string; id: bigint; created_at: bigint }, []>(
    "SELECT * FROM idempotency_records ORDER BY created_at, id",
  );
  for (const { key_hash, title_hash, id, created_at } of rows.iterate()) {
    yield { keyHash: key_hash, titleHash: title_hash, id, createdAt: Number(created_at) };
  }
}
