import type { Database } from "bun:sqlite";
import { readdirSync } from "node:fs";
import { dirname, join } from "node:path";
import { type TaskOptions, yieldToEventLoop } from "../../maintenance.ts";
import { countRows } from "../contents.ts";
import { createPrivate, fileUsage, isTemporaryCopy, removeDatabase, temporaryCopy } from "../files.ts";
import { isBusy } from "../lock.ts";
import { migrate } from "../migrations.ts";
import { openDatabase } from "../open.ts";

const MIB = 1024 * 1024;
/** A server that uses the store needs room, too. */
const MIN_FREE_BYTES = MIB;
/** Few enough for a step of a few milliseconds. */
const ROWS_PER_STEP = 10_000;

/** Runs a function on a private copy of a store beside it, which is then removed. Throws an Error if it has no room. */
export async function withTemporaryCopy<T>(
  path: string,
  task: TaskOptions,
  use: (copy: Database) => Promise<T>,
): Promise<T> {
  const { databaseBytes, walBytes, freeBytes } = fileUsage(path);
  if (freeBytes < databaseBytes + walBytes + MIN_FREE_BYTES)
    throw new Error(
      `${dirname(path)} has no room for a temporary copy of the store (${toMib(databaseBytes + walBytes)}; ${toMib(freeBytes)} are free): make room, or run todo backup to another disk and export that file`,
    );
  const file = temporaryCopy(path);
  createPrivate(file);
  try {
    using copy = await copyStore(path, file, task);
    return await use(copy);
  } finally {
    removeDatabase(file);
  }
}

const toMib = (bytes: number): string => `${Math.ceil(bytes / MIB)} MiB`;

/** Removes the temporary copies that killed commands have left beside a store. */
export function removeAbandonedCopies(path: string): void {
  for (const name of readdirSync(dirname(path))) {
    const file = join(dirname(path), name);
    if (isTemporaryCopy(path, file) && !isInUse(file)) removeDatabase(file);
  }
}

function isInUse(copy: string): boolean {
  try {
    return isBusy(copy, "SELECT count(*) FROM sqlite_schema");
  } catch {
    // A power cut can damage a copy.
    return false;
  }
}

/**
 * Copies a snapshot of a store with the current format into an empty file, without events and without what other programs
 * have added. Returns a connection to the copy, which locks it. A reader of the copy does not keep the WAL of the
 * store from being reused.
 */
export async function copyStore(path: string, file: string, task: TaskOptions): Promise<Database> {
  const copy = openDatabase(file, "exclusive");
  try {
    migrate(copy);
    // A copy that fails is removed, and fsynced only when it is complete.
    copy.run(
      "PRAGMA main.journal_mode = MEMORY; PRAGMA main.synchronous = OFF; PRAGMA main.locking_mode = EXCLUSIVE",
    );
    copy.run("ATTACH ? AS source", [path]);
    copy.run("BEGIN");
    for (const table of ["store", "keys", "idempotency_records"]) {
      copy.run(`DELETE FROM main.${table}`);
      copy.run(`INSERT INTO main.${table} SELECT * FROM source.${table}`);
    }
    await copyTodos(copy, task);
    copy.run("COMMIT");
    copy.run("DETACH source");
    return copy;
  } catch (error) {
    copy.close();
    // If the disk fails, SQLite leaves a journal, which a later copy would roll back.
    removeDatabase(file);
    throw error;
  }
}

async function copyTodos(copy: Database, { signal, onProgress = () => {} }: TaskOptions): Promise<void> {
  const total = countRows(copy, "source.todos");
  const insert = copy.query(
    `INSERT INTO main.todos SELECT * FROM source.todos
     WHERE id > (SELECT coalesce(max(id), -9223372036854775808) FROM main.todos) ORDER BY id LIMIT ?`,
  );
  for (let done = 0, added = -1; added !== 0; done += added) {
    await yieldToEventLoop(signal);
    added = insert.run(ROWS_PER_STEP).changes;
    onProgress("copying", done + added, total);
  }
}
