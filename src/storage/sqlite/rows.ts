/** Reads and writes rows. A damaged one is never served, because each row has the CRC-32 of its other values. */
import type { Database } from "bun:sqlite";
import { randomBytes } from "node:crypto";
import type { StoredKey } from "../../credential/key.ts";
import { decide, type KeyChange } from "../../credential/key-rules.ts";
import type { Position, TodoEvent, TodoId } from "../../todo.ts";
import type { OnProgress } from "../maintenance.ts";
import { decodeEvents } from "../records/event-codec.ts";
import type { IdempotencyRecord } from "../records/idempotency.ts";
import { type KeyRow, toStoredKey, toValues } from "../records/key-row.ts";
import { Table } from "../table/table.ts";

/** The file of a store is damaged. The message says what is wrong. */
export class DamageError extends Error {
  override readonly name = "DamageError";
  /** An error of another thread keeps its code only. */
  readonly code = "SQLITE_CORRUPT";
}

/** Returns the id of a new store, or a new epoch. */
export const randomId = (): string => randomBytes(8).toString("hex");

type Row<T> = T & { readonly crc: bigint };

/** Returns the CRC-32 of the values of a row. */
const crcOf = (...values: readonly unknown[]): number =>
  Bun.hash.crc32(
    values
      .map((value) => (value instanceof Uint8Array ? Buffer.from(value).toString("hex") : value))
      .join(" "),
  );

/** Returns a sum of CRCs modulo 2^32. Unlike an XOR, it also shows two rows whose changes cancel out in a CRC. */
export const toChecksum = (sum: number): bigint => BigInt.asUintN(32, BigInt(sum));

/** The value of `keys_used` in a store that no server has used. */
export const UNUSED = -1n;

/** The only row of the table `store`. */
export interface Counters {
  /** Identifies the store for its mark and its backups. */
  readonly id: string;
  /** The position of the last change to a to-do. */
  readonly epoch: string;
  readonly sequence: bigint;
  /** The greatest id ever assigned. */
  readonly last_id: bigint;
  /** The sum of the CRCs of all to-dos and API keys, modulo 2^32. It shows missing and old rows. */
  readonly checksum: bigint;
  /** The number of changes to API keys. */
  readonly key_changes: bigint;
  /** The last of these changes that a server uses. */
  readonly keys_used: bigint;
}

/** The counters with their CRC, which differs after each change. */
export type StoredCounters = Row<Counters>;

const valuesOf = ({ id, epoch, sequence, last_id, checksum, key_changes, keys_used }: Counters) =>
  [id, epoch, sequence, last_id, checksum, key_changes, keys_used] as const;

/** Inserts the counters of an empty store. */
export function insertCounters(database: Database): void {
  database.run("INSERT INTO store VALUES ('', '', 0, 0, 0, 0, 0, 0)");
  const none = { sequence: 0n, last_id: 0n, checksum: 0n, key_changes: 0n, keys_used: UNUSED };
  putCounters(database, { id: randomId(), epoch: randomId(), ...none });
}

export function readCounters(database: Database): StoredCounters {
  const [row, ...others] = database.query<StoredCounters, []>("SELECT * FROM store LIMIT 2").all();
  if (row === undefined || others.length > 0 || Number(row.crc) !== crcOf(...valuesOf(row)))
    throw new DamageError("its counters are damaged");
  return row;
}

export function putCounters(database: Database, counters: Counters): void {
  const values = valuesOf(counters);
  database
    .query(
      "UPDATE store SET (id, epoch, sequence, last_id, checksum, key_changes, keys_used, crc) = (?, ?, ?, ?, ?, ?, ?, ?)",
    )
    .run(...values, crcOf(...values));
}

/**
 * Returns a function that inserts an encoded to-do, and returns what that adds to the checksum. The text has the id, so its CRC
 * protects both.
 */
export function todoInserter(database: Database): (id: TodoId, json: string) => number {
  const statement = database.query("INSERT INTO todos VALUES (?, ?, ?)");
  return (id, json) => {
    const crc = Bun.hash.crc32(json);
    statement.run(id, json, crc);
    return crc;
  };
}

/** Changes a to-do. Returns what that adds to the checksum. */
export function updateTodo(database: Database, id: TodoId, json: string): number {
  const before = crcOfTodo(database, "SELECT crc FROM todos WHERE id = ?", id);
  const crc = Bun.hash.crc32(json);
  // A deletion and an insertion would cost 2.7 µs more.
  database.query("UPDATE todos SET json = ?, crc = ? WHERE id = ?").run(json, crc, id);
  return crc - before;
}

/** Deletes a to-do. Returns what that adds to the checksum, which is negative. */
export const deleteTodo = (database: Database, id: TodoId): number =>
  -crcOfTodo(database, "DELETE FROM todos WHERE id = ? RETURNING crc", id);

function crcOfTodo(database: Database, sql: string, id: TodoId): number {
  const row = database.query<{ crc: bigint }, [bigint]>(sql).get(id);
  if (row === null) throw new DamageError(`the to-do ${id} is missing`);
  return Number(row.crc);
}

/** The encoded to-do is read as bytes, because the table keeps them. */
type TodoRow = readonly [id: TodoId, json: Uint8Array, crc: number];

const TODO_COLUMNS = "id, CAST(json AS BLOB), crc";
/** The number of rows that one query reads. Rows of arrays take half of the time of one object after another. */
const ROWS_AT_ONCE = 1000;
/** The garbage of this number of rows is freed at once: a start with ten million of them would need twice the memory. */
const ROWS_UNTIL_FREED = 100_000;

/** Returns a row as this program wrote it; `undefined` for a damaged one, which may have values of other types. */
function toIntact([id, json, crc]: readonly unknown[]): TodoRow | undefined {
  if (typeof id !== "bigint" || !(json instanceof Uint8Array)) return undefined;
  const expected = Bun.hash.crc32(json);
  return Number(crc) === expected && hasId(json, id) ? [id, json, expected] : undefined;
}

/** A start compares all ids, and writing a bigint as text takes four times as long as reading the digits of a number. */
function hasId(json: Uint8Array, id: TodoId): boolean {
  if (id > Number.MAX_SAFE_INTEGER) return decoder.decode(json).startsWith(`{"id":${id},`);
  let found = 0;
  for (let at = ID_AT; isDigit(json[at]); at++) found = found * 10 + (json[at] ?? 0) - ZERO;
  return id > 0n && found === Number(id);
}

const isDigit = (byte = 0): boolean => byte >= ZERO && byte <= NINE;

const decoder = new TextDecoder();
const ZERO = 0x30;
const NINE = 0x39;
const ID_AT = '{"id":'.length;

/**
 * Reads all to-dos and API keys. Throws a DamageError if one is damaged, missing or old.
 * @param visit called with all to-dos by ascending id
 */
export function readIntact(database: Database, visit: (todos: readonly TodoRow[]) => void = () => {}) {
  const keys = readKeys(database);
  let sum = sumOfKeys(keys);
  for (const rows of readTodos(database)) {
    for (const [, , crc] of rows) sum = (sum + crc) % 2 ** 32;
    visit(rows);
  }
  const counters = readCounters(database);
  if (toChecksum(sum) !== counters.checksum) throw new DamageError("to-dos or API keys are missing or old");
  return { keys, counters };
}

/** Reads all to-dos into a table, and the API keys, as `readIntact` does. */
export function readContents(database: Database, onProgress: OnProgress) {
  const table = new Table();
  const total = countTodos(database);
  const read = readIntact(database, (rows) => {
    for (const [id, json] of rows) table.append(id, json);
    if (table.count % ROWS_UNTIL_FREED === 0) Bun.gc(false);
    onProgress("loading", table.count, total);
  });
  return { table, ...read };
}

export const countTodos = (database: Database): number =>
  Number(database.query<{ n: bigint }, []>("SELECT count(*) AS n FROM todos").get()?.n);

function* readTodos(database: Database): Generator<TodoRow[]> {
  const sql = `SELECT ${TODO_COLUMNS} FROM todos WHERE id > ? ORDER BY id LIMIT ${ROWS_AT_ONCE}`;
  const query = database.query<TodoRow, [bigint]>(sql);
  // Before the least id that SQLite has.
  let last = -(2n ** 63n);
  for (;;) {
    const rows = query.values(last).map((row) => {
      const todo = toIntact(row);
      if (todo === undefined) throw new DamageError(`the to-do ${row[0]} is damaged`);
      return todo;
    });
    last = rows.at(-1)?.[0] ?? last;
    if (rows.length > 0) yield rows;
    if (rows.length < ROWS_AT_ONCE) return;
  }
}

/** The greatest id: SQLite's integers are signed 64-bit. */
export const MAX_SQLITE_ID: TodoId = 2n ** 63n - 1n;

/** How often a damaged table is read in vain at most. */
const MAX_FAILED_READS = 100_000;

/** Returns the intact to-dos of a damaged table by ascending id. */
export function readIntactTodos(database: Database): TodoRow[] {
  const found = new Map(readRange(database, 1n, MAX_SQLITE_ID, { reads: 0 }).map((row) => [row[0], row]));
  return [...found.values()].sort(([one], [other]) => (one < other ? -1 : 1));
}

/** Yields the intact to-dos of a range of ids. Divides one that cannot be read. */
function* readRange(
  database: Database,
  first: TodoId,
  last: TodoId,
  failed: { reads: number },
): Generator<TodoRow> {
  const sql = `SELECT ${TODO_COLUMNS} FROM todos WHERE id BETWEEN ? AND ?`;
  try {
    const rows = database.query<TodoRow, [bigint, bigint]>(sql).values(first, last);
    yield* rows.map(toIntact).filter((row) => row !== undefined);
  } catch {
    if (first === last || ++failed.reads > MAX_FAILED_READS) return;
    const middle = (first + last) / 2n;
    yield* readRange(database, first, middle, failed);
    yield* readRange(database, middle + 1n, last, failed);
  }
}

/** Returns the API keys from the oldest to the newest. */
export function readKeys(database: Database): StoredKey[] {
  const rows = database.query<Row<KeyRow>, []>("SELECT * FROM keys ORDER BY created_at, rowid").all();
  return rows.map((row) => {
    const key = toStoredKey(row);
    if (Number(row.crc) !== crcOf(...toValues(key))) throw new DamageError("an API key is damaged");
    return key;
  });
}

/** Returns what API keys add to the checksum. */
export const sumOfKeys = (keys: readonly StoredKey[]): number =>
  keys.reduce((sum, key) => sum + crcOf(...toValues(key)), 0);

/** Inserts an API key, or changes the one with its id. */
export function putKey(database: Database, key: StoredKey): void {
  const values = toValues(key);
  database
    .query(
      `INSERT INTO keys VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE
       SET name = excluded.name, expires_at = excluded.expires_at, last_used_at = excluded.last_used_at, crc = excluded.crc`,
    )
    .run(...values, crcOf(...values));
}

/** Changes API keys in the current transaction. Returns the number of the change; `undefined` if the rules do not allow it. */
export function changeKeys(database: Database, change: KeyChange): bigint | undefined {
  const counters = readCounters(database);
  const keys = new Map(readKeys(database).map((key) => [key.id, key]));
  const difference = decide(keys, change);
  if (difference === undefined) return undefined;
  const [remove, put] = [[...difference.remove], difference.put];
  for (const id of remove) database.query("DELETE FROM keys WHERE id = ?").run(id);
  for (const key of put) putKey(database, key);
  const changed = new Set([...remove, ...put.map(({ id }) => id)]);
  const before = [...changed].flatMap((id) => keys.get(id) ?? []);
  const checksum = toChecksum(Number(counters.checksum) - sumOfKeys(before) + sumOfKeys(put));
  const key_changes = counters.key_changes + 1n;
  putCounters(database, { ...counters, checksum, key_changes });
  return key_changes;
}

/** Inserts the events of a batch, encoded with one line each. A damaged row may have their place. */
export function insertEvents(database: Database, last: Position, events: string): void {
  const { epoch, sequence } = last;
  database
    .query("INSERT OR REPLACE INTO events VALUES (?, ?, ?, ?)")
    .run(sequence, epoch, events, crcOf(sequence, epoch, events));
}

type EventsRow = Row<{ readonly last_sequence: bigint; readonly epoch: string; readonly events: string }>;

/**
 * Returns the latest events, `maxEvents` or a few more, without those before a damaged or missing row.
 * @returns `damage` says why events are left out
 */
export function readEvents(database: Database, { epoch, sequence }: Counters, maxEvents: number) {
  const rows = database
    .query<EventsRow, [bigint]>("SELECT * FROM events WHERE last_sequence > ? ORDER BY last_sequence DESC")
    .all(sequence - BigInt(maxEvents));
  const batches: TodoEvent[][] = [];
  let end = { epoch, sequence: Number(sequence) };
  for (const row of rows) {
    const isNext = Number(row.last_sequence) === end.sequence && (batches.length > 0 || row.epoch === epoch);
    if (!isNext || Number(row.crc) !== crcOf(row.last_sequence, row.epoch, row.events))
      return {
        events: batches.flat(),
        damage: `events before position ${end.sequence + 1} are damaged or missing`,
      };
    const events = decodeEvents(row.events, { epoch: row.epoch, sequence: end.sequence });
    batches.unshift(events);
    end = { epoch: row.epoch, sequence: end.sequence - events.length };
  }
  return { events: batches.flat(), damage: undefined };
}

export function putRecord(database: Database, record: IdempotencyRecord): void {
  const { keyHash, titleHash, id, createdAt } = record;
  database
    .query("INSERT OR REPLACE INTO idempotency_records VALUES (?, ?, ?, ?, ?)")
    .run(keyHash, titleHash, id, createdAt, crcOf(keyHash, titleHash, id, createdAt));
}

interface RecordRow {
  readonly key_hash: string;
  readonly title_hash: string;
  readonly id: bigint;
  readonly created_at: bigint;
}

/** Returns the records of idempotency keys, the oldest first, and the hashes of the keys of damaged ones. */
export function readRecords(database: Database) {
  const records: IdempotencyRecord[] = [];
  const damaged: string[] = [];
  const sql = "SELECT * FROM idempotency_records ORDER BY created_at, id";
  for (const row of database.query<Row<RecordRow>, []>(sql).all()) {
    const { key_hash: keyHash, title_hash: titleHash, id, created_at, crc } = row;
    if (Number(crc) === crcOf(keyHash, titleHash, id, created_at))
      records.push({ keyHash, titleHash, id, createdAt: Number(created_at) });
    else damaged.push(keyHash);
  }
  return { records, damaged };
}

/** Throws a DamageError if the structure of a database is damaged. */
export function assertStructure(database: Database): void {
  const [line] = database.query<{ integrity_check: string }, []>("PRAGMA integrity_check(1)").all();
  if (line?.integrity_check !== "ok")
    throw new DamageError(line?.integrity_check ?? "its structure cannot be checked");
}

/** Throws a DamageError if the structure of a database, a to-do or an API key is damaged. Returns the counters. */
export const assertIntact = (database: Database): StoredCounters =>
  database
    .transaction(() => {
      assertStructure(database);
      return readIntact(database).counters;
    })
    .deferred();
