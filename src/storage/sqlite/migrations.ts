import type { Database } from "bun:sqlite";
import { randomBytes } from "node:crypto";
import { storeChecksum } from "./contents.ts";

/** All migrations of the file, in order. A released migration must never change. */
export const MIGRATIONS: readonly string[] = [
  `-- A to-do is encoded once, as responses and events have it.
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
   ) STRICT;`,
];

/** Applies the missing migrations. The caller must hold the lock. */
export function migrate(database: Database, migrations = MIGRATIONS): void {
  const version = assertKnownFormat(database, migrations);
  database.transaction(() => {
    for (const migration of migrations.slice(version)) database.run(migration);
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
