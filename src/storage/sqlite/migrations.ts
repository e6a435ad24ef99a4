import type { Database } from "bun:sqlite";
import { randomBytes } from "node:crypto";
import { type KeyRow, toStoredKey } from "../records/key-row.ts";
import { storeChecksum } from "./contents.ts";
import { assertReadable } from "./errors.ts";
import {
  type EventsRow,
  insertEvents,
  putIdempotencyRecord,
  putStoredKey,
  storedIdempotencyRecords,
} from "./rows.ts";

const FORMAT_1 = `-- A to-do is encoded once, as responses and events have it.
   CREATE TABLE todos (id INTEGER PRIMARY KEY, json TEXT NOT NULL) STRICT;
   -- The events of a batch are one row, a line each: a row each cost more than the to-dos themselves.
   CREATE TABLE events (last_sequence INTEGER PRIMARY KEY, epoch TEXT NOT NULL, events TEXT NOT NULL) STRICT;
   CREATE TABLE idempotency_records (
     key_hash TEXT PRIMARY KEY, title_hash TEXT NOT NULL, id INTEGER NOT NULL, created_at INTEGER NOT NULL
   ) STRICT, WITHOUT ROWID;
   CREATE INDEX idempotency_records_by_age ON idempotency_records (created_at);
   CREATE TABLE keys (
     id TEXT PRIMARY KEY, name TEXT NOT NULL, token_hash BLOB NOT NULL UNIQUE,
     created_at INTEGER NOT NULL, expires_at INTEGER, last_used_at INTEGER, lifetime INTEGER,
     scope TEXT NOT NULL, parent TEXT
   ) STRICT;
   -- The id and the number of committed transactions are for the high-water mark. The epoch is that of the last change.
   CREATE TABLE store (
     id TEXT NOT NULL, epoch TEXT NOT NULL, last_id INTEGER NOT NULL, sequence INTEGER NOT NULL,
     transactions INTEGER NOT NULL, checksum_a INTEGER NOT NULL, checksum_b INTEGER NOT NULL
   ) STRICT;`;

/** API keys have kinds and parents in columns; events and idempotency records have a CRC. No write needs records by age. */
const FORMAT_2 = `
   CREATE TABLE keys (
     id TEXT PRIMARY KEY, name TEXT NOT NULL, token_hash BLOB NOT NULL UNIQUE,
     created_at INTEGER NOT NULL, expires_at INTEGER, last_used_at INTEGER, lifetime INTEGER,
     scope TEXT NOT NULL, kind TEXT NOT NULL, parent TEXT, owner_kind TEXT, owner_name TEXT, owner_hash TEXT
   ) STRICT;
   CREATE TABLE events (
     last_sequence INTEGER PRIMARY KEY, epoch TEXT NOT NULL, events TEXT NOT NULL, crc INTEGER NOT NULL
   ) STRICT;
   CREATE TABLE idempotency_records (
     key_hash TEXT PRIMARY KEY, title_hash TEXT NOT NULL, id INTEGER NOT NULL, created_at INTEGER NOT NULL, crc INTEGER NOT NULL
   ) STRICT, WITHOUT ROWID;`;

/** Copies the rows of format 1 and leaves the checksum of the store as it is, so that the start compares the copies with it. */
function convertToFormat2(database: Database): void {
  const tables = ["keys", "events", "idempotency_records"];
  for (const table of tables) database.run(`ALTER TABLE ${table} RENAME TO old_${table}`);
  database.run(FORMAT_2);
  const rows = <T>(table: string) => database.query<T, []>(`SELECT * FROM old_${table}`).iterate();
  for (const row of rows<KeyRow>("keys")) putStoredKey(database, toStoredKey(row));
  for (const { last_sequence, epoch, events } of rows<EventsRow>("events"))
    insertEvents(database, last_sequence, epoch, events);
  for (const record of storedIdempotencyRecords(database, () => {}, "old_idempotency_records"))
    putIdempotencyRecord(database, record);
  for (const table of tables) database.run(`DROP TABLE old_${table}`);
}

type Migration = (database: Database) => void;

/** All migrations of the file, in order. A released migration must never change. */
export const MIGRATIONS: readonly Migration[] = [(database) => void database.run(FORMAT_1), convertToFormat2];

/** Applies the missing migrations. The caller must hold the lock. */
export function migrate(database: Database, migrations = MIGRATIONS): void {
  const version = assertKnownFormat(database, migrations);
  database.transaction(() => {
    for (const apply of migrations.slice(version)) assertReadable(() => apply(database));
    if (version === 0) {
      database.run("INSERT INTO store VALUES (?, ?, 0, 0, 0, 0, 0)", [randomId(), randomId()]);
      storeChecksum(database);
    }
    database.run(`PRAGMA user_version = ${migrations.length}`);
  })();
}

/** The format is one of a newer version, or damaged. */
export class UnknownFormatError extends Error {
  override readonly name = "UnknownFormatError";
}

/** Returns the number of applied migrations. Throws an UnknownFormatError for a greater number than this version has. */
export function assertKnownFormat(database: Database, migrations = MIGRATIONS): number {
  const version = getUserVersion(database);
  if (version <= migrations.length) return version;
  throw new UnknownFormatError(
    `it was written by a newer version of this program (format ${version}; this version knows formats up to ${migrations.length}): use the newer version, or restore a backup with todo restore`,
  );
}

export const getUserVersion = (database: Database): number =>
  Number(database.query<{ user_version: bigint }, []>("PRAGMA user_version").get()?.user_version);

export const isCurrent = (database: Database): boolean => assertKnownFormat(database) === MIGRATIONS.length;

/** Returns the id of a new store, or a new epoch. */
export const randomId = (): string => randomBytes(8).toString("hex");
