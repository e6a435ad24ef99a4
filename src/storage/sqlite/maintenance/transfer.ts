import type { Database } from "bun:sqlite";
import { existsSync } from "node:fs";
import { dirname } from "node:path";
import { encodeTodo, type Todo } from "../../../todo.ts";
import { fsyncPath, removeDatabase } from "../../atomic-file.ts";
import { PreconditionError, type TaskOptions, type TransferSummary } from "../../maintenance.ts";
import { encodeHeader, NdjsonReader } from "../../ndjson.ts";
import { connect } from "../connection.ts";
import { matchesStoredDigest, otherTexts, storeDigest, todoRows } from "../contents.ts";
import { contentsDiffer } from "../damage.ts";
import { DigestSum } from "../digest.ts";
import { assertNotBehindMark, removeMark, writeMark } from "../mark.ts";
import { migrate, newEpoch } from "../migrations.ts";
import { MAX_SQLITE_ID } from "../store.ts";
import { storeRow } from "../store-row.ts";
import { openOrRefuse, withExclusiveAccess, withSharedAccess, yieldToEventLoop } from "./access.ts";

const PIECE_LENGTH = 64 * 1024;

/** Implements `Maintenance.export`. */
export function exportTodos(
  path: string,
  write: (text: string) => Promise<void>,
  { signal, onProgress }: TaskOptions,
): Promise<TransferSummary> {
  return withSharedAccess(path, async (database) => {
    // The transaction is a snapshot: later writes are not visible.
    database.run("BEGIN");
    const total = countOf(database);
    const lastId = storeRow(database).last_id;
    let piece = `${encodeHeader({ lastId, todos: total })}\n`;
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
    await write(piece);
    onProgress(todos, total);
    return { todos, lastId };
  });
}

/** Implements `Maintenance.import` in one transaction. */
export function importTodos(
  path: string,
  source: AsyncIterable<Uint8Array>,
  maxTodos: number,
  work: TaskOptions,
): Promise<TransferSummary> {
  return withExclusiveAccess(path, async () => {
    openOrRefuse(path, () => assertNotBehindMark(path));
    const wasThere = existsSync(path);
    try {
      return await importInto(path, source, maxTodos, work);
    } catch (error) {
      if (!wasThere) removeDatabase(path);
      throw error;
    }
  });
}

async function importInto(
  path: string,
  source: AsyncIterable<Uint8Array>,
  maxTodos: number,
  { signal, onProgress }: TaskOptions,
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
    const reader = new NdjsonReader(MAX_SQLITE_ID);
    const sum = new DigestSum();
    const insertAll = (todos: Iterable<Todo>): void => {
      for (const { id, title, done } of todos) {
        if (reader.count > maxTodos) {
          throw new PreconditionError(
            `the file has more than ${maxTodos} to-dos: raise the limit with --max-todos`,
          );
        }
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
    const epoch = newEpoch();
    database
      .query("UPDATE store SET epoch = ?, last_id = ?, n = ?, transactions = 0")
      .run(epoch, reader.lastId, reader.count);
    for (const text of otherTexts(database)) sum.add(text);
    storeDigest(database, sum.value);
    removeMark(path);
    fsyncPath(dirname(path));
    database.run("COMMIT");
    writeMark(path, { epoch, transactions: 0 });
    onProgress(reader.count, reader.total);
    return { todos: reader.count, lastId: reader.lastId };
  } finally {
    // Closing rolls back an uncommitted transaction.
    database.close();
  }
}

function countOf(database: Database): number {
  return Number(database.query<{ count: bigint }, []>("SELECT count(*) AS count FROM todos").get()?.count);
}
