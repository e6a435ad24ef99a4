import type { Database } from "bun:sqlite";
import { existsSync } from "node:fs";
import { dirname } from "node:path";
import type { StoredKey } from "../../../credential/key.ts";
import { encodeTodo, type Todo } from "../../../todo.ts";
import { fsyncPath, removeDatabase } from "../../atomic-file.ts";
import {
  hasKeys,
  PreconditionError,
  TooManyTodosError,
  type TransferOptions,
  type TransferSummary,
} from "../../maintenance.ts";
import { encodeHeader, encodeKey, NdjsonReader } from "../../ndjson.ts";
import { type KeyRow, toStoredKey } from "../../records/key-row.ts";
import { connect } from "../connection.ts";
import { matchesStoredDigest, otherTexts, storeDigest, todoRows } from "../contents.ts";
import { contentsDiffer } from "../damage.ts";
import { DigestSum } from "../digest.ts";
import { assertNotBehindMark, beginMark, removeMark } from "../mark.ts";
import { migrate, newEpoch } from "../migrations.ts";
import { MAX_SQLITE_ID } from "../store.ts";
import { storeRow } from "../store-row.ts";
import { openOrRefuse, withExclusiveAccess, withSharedAccess, yieldToEventLoop } from "./access.ts";

const PIECE_LENGTH = 64 * 1024;

/** Implements `StoreAdmin.export`. */
export function exportTodos(
  path: string,
  write: (text: string) => Promise<void>,
  { signal, onProgress, keys: withKeys }: TransferOptions,
): Promise<TransferSummary> {
  return withSharedAccess(path, async (database) => {
    // The transaction is a snapshot: later writes are not visible.
    database.run("BEGIN");
    const total = countOf(database);
    const lastId = storeRow(database).last_id;
    const keys = withKeys === "include" ? storedKeys(database).map(encodeKey) : undefined;
    let piece = `${encodeHeader({ lastId, todos: total, keys: keys?.length })}\n`;
    let todos = 0;
    const sum = new DigestSum();
    for (const { json } of todoRows(database)) {
      sum.add(json);
      piece += `${json}\n`;
      todos++;
      if (piece.length < PIECE_LENGTH) continue;
      await write(piece);
      piece = "";
      onProgress(todos, total);
      await yieldToEventLoop(signal);
    }
    for (const text of otherTexts(database)) sum.add(text);
    if (matchesStoredDigest(database, sum.value) === false) throw contentsDiffer();
    for (const key of keys ?? []) piece += `${key}\n`;
    await write(piece);
    onProgress(todos, total);
    return { todos, lastId, keys: keys?.length };
  });
}

/** Implements `StoreAdmin.import` in one transaction. */
export function importTodos(
  path: string,
  source: AsyncIterable<Uint8Array>,
  maxTodos: number,
  work: TransferOptions,
): Promise<TransferSummary> {
  return withExclusiveAccess(path, async () => {
    openOrRefuse(path, () => assertNotBehindMark(path));
    const wasThere = existsSync(path);
    const epoch = newEpoch();
    const summary = await importInto(path, epoch, source, maxTodos, work).catch((error) => {
      if (!wasThere) removeDatabase(path);
      throw error;
    });
    beginMark(path, epoch);
    return summary;
  });
}

async function importInto(
  path: string,
  epoch: string,
  source: AsyncIterable<Uint8Array>,
  maxTodos: number,
  { signal, onProgress, keys }: TransferOptions,
): Promise<TransferSummary> {
  const database = openOrRefuse(path, () => connect(path));
  try {
    openOrRefuse(path, () => migrate(database));
    database.run("BEGIN IMMEDIATE");
    if (storeRow(database).last_id > 0n) {
      throw new PreconditionError(
        `${path} has contained to-dos: import into a new file, or move this file away first`,
      );
    }
    const insert = database.query("INSERT INTO todos VALUES (?, ?, ?)");
    const reader = new NdjsonReader(MAX_SQLITE_ID, keys);
    const sum = new DigestSum();
    const insertAll = (todos: Iterable<Todo>): void => {
      for (const { id, title, done } of todos) {
        if (reader.count > maxTodos) throw new TooManyTodosError(maxTodos);
        insert.run(id, JSON.stringify(title), done ? 1 : 0);
        sum.add(encodeTodo({ id, title, done }));
      }
    };
    for await (const piece of source) {
      insertAll(reader.read(piece));
      onProgress(reader.count, reader.total);
      await yieldToEventLoop(signal);
    }
    insertAll(reader.end());
    insertKeys(database, reader.keys);
    database
      .query("UPDATE store SET epoch = ?, last_id = ?, n = ?, transactions = 0")
      .run(epoch, reader.lastId, reader.count);
    for (const text of otherTexts(database)) sum.add(text);
    storeDigest(database, sum.value);
    removeMark(path);
    fsyncPath(dirname(path));
    database.run("COMMIT");
    onProgress(reader.count, reader.total);
    return {
      todos: reader.count,
      lastId: reader.lastId,
      ...(keys === "include" && { keys: reader.keys.length }),
    };
  } finally {
    // Closing rolls back an uncommitted transaction.
    database.close();
  }
}

function storedKeys(database: Database): StoredKey[] {
  return database.query<KeyRow, []>("SELECT * FROM keys ORDER BY created_at, rowid").all().map(toStoredKey);
}

function insertKeys(database: Database, keys: readonly StoredKey[]): void {
  if (keys.length > 0 && storedKeys(database).length > 0) throw hasKeys();
  const insert = database.query("INSERT INTO keys VALUES (?, ?, ?, ?, ?, ?, ?, ?)");
  for (const { id, name, tokenHash, createdAt, expiresAt, lastUsedAt, lifetime, scope } of keys)
    insert.run(
      id,
      name,
      tokenHash,
      createdAt,
      expiresAt ?? null,
      lastUsedAt ?? null,
      lifetime ?? null,
      scope,
    );
}

function countOf(database: Database): number {
  return Number(database.query<{ count: bigint }, []>("SELECT count(*) AS count FROM todos").get()?.count);
}
