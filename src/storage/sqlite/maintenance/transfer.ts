import { existsSync } from "node:fs";
import { encodeTodo } from "../../../todo.ts";
import { hasKeys, PreconditionError, type TransferOptions, type TransferSummary } from "../../maintenance.ts";
import { inBatches, writeExport } from "../../ndjson.ts";
import { NdjsonReader } from "../../ndjson-reader.ts";
import { assertUndamaged, countRows, storeChecksum, storedTodos, visitor } from "../contents.ts";
import { removeDatabase } from "../files.ts";
import { assertNotBehindMark, beginMark, removeMark } from "../mark.ts";
import { randomId } from "../migrations.ts";
import { openDatabase } from "../open.ts";
import { putIdempotencyRecord, putStoredKey, readStoredKeys, storedIdempotencyRecords } from "../rows.ts";
import { MAX_SQLITE_ID } from "../store.ts";
import { storeRow } from "../store-row.ts";
import { lockOrRefuse, openOrRefuse, withSharedAccess } from "./access.ts";
import { withTemporaryCopy } from "./copy.ts";

/** Implements `StoreAdmin.export`. */
export function exportTodos(
  path: string,
  write: (text: string) => Promise<void>,
  { keys, ...options }: TransferOptions,
): Promise<TransferSummary> {
  return withSharedAccess(path, () =>
    // A paused reader of the store would keep its WAL from being reused.
    withTemporaryCopy(path, options, (copy) => {
      assertUndamaged(copy, visitor(copy, "checking", options.onProgress));
      return writeExport(
        {
          lastId: storeRow(copy).last_id,
          count: countRows(copy, "todos"),
          todos: inBatches(storedTodos(copy)),
          keys: keys === "include" ? readStoredKeys(copy) : undefined,
          idempotencyRecords: [...storedIdempotencyRecords(copy)],
        },
        write,
        options,
      );
    }),
  );
}

/** Implements `StoreAdmin.import` in one transaction. */
export async function importTodos(
  path: string,
  source: AsyncIterable<Uint8Array>,
  maxTodos: number,
  work: TransferOptions,
): Promise<TransferSummary> {
  using _ = lockOrRefuse(path);
  openOrRefuse(path, () => assertNotBehindMark(path));
  const wasThere = existsSync(path);
  const id = randomId();
  const summary = await importInto(path, id, source, maxTodos, work).catch((error) => {
    if (!wasThere) removeDatabase(path);
    throw error;
  });
  beginMark(path, id);
  return summary;
}

/** Imports an export into a database without to-dos, and begins a new epoch. */
export async function importInto(
  path: string,
  storeId: string,
  source: AsyncIterable<Uint8Array>,
  maxTodos: number,
  { keys, ...options }: TransferOptions,
): Promise<TransferSummary> {
  // Closing rolls back an uncommitted transaction.
  using database = openOrRefuse(path, () => openDatabase(path, "server"));
  database.run("BEGIN IMMEDIATE");
  if (storeRow(database).last_id > 0n) {
    throw new PreconditionError(
      `${path} has contained to-dos: import into a new file, or move this file away first`,
    );
  }
  const insert = database.query("INSERT INTO todos VALUES (?, ?)");
  const reader = new NdjsonReader(MAX_SQLITE_ID, keys);
  for await (const todos of reader.readAll(source, maxTodos, options))
    for (const todo of todos) insert.run(todo.id, encodeTodo(todo));
  if (reader.keys.length > 0 && readStoredKeys(database).length > 0) throw hasKeys();
  for (const key of reader.keys) putStoredKey(database, key);
  for (const record of reader.idempotencyRecords) putIdempotencyRecord(database, record);
  database
    .query("UPDATE store SET id = ?, epoch = ?, last_id = ?, sequence = ?, transactions = 0")
    .run(storeId, randomId(), reader.lastId, reader.count);
  storeChecksum(database);
  removeMark(path);
  database.run("COMMIT");
  return reader.summary;
}
