import type { Database } from "bun:sqlite";
import { existsSync } from "node:fs";
import type { Todo } from "../../todo.ts";
import { type Moved, Refusal, type Work } from "../archive.ts";
import { encodeHeader, NdjsonReader } from "../ndjson.ts";
import { removeDatabase } from "../whole-file.ts";
import { besideServer, opening, turn, withoutServer } from "./access.ts";
import { MAX_SQLITE_ID } from "./engine.ts";
import { connect, migrate, newEpoch, storeRow, TODO_JSON } from "./file.ts";

const PIECE_LENGTH = 64 * 1024;

/** As `Archive` says. */
export function exportTodos(
  path: string,
  write: (text: string) => Promise<void>,
  { signal, onProgress }: Work,
): Promise<Moved> {
  return besideServer(path, async (database) => {
    // One moment's: what is written meanwhile is not seen.
    database.run("BEGIN");
    const total = countOf(database);
    const lastId = storeRow(database).last_id;
    let piece = `${encodeHeader({ lastId, todos: total })}\n`;
    let todos = 0;
    const rows = database.query<{ json: string }, []>(`SELECT ${TODO_JSON} AS json FROM todos ORDER BY id`);
    for (const { json } of rows.iterate()) {
      piece += `${json}\n`;
      todos++;
      if (piece.length < PIECE_LENGTH) continue;
      await write(piece);
      piece = "";
      onProgress(todos, total);
      await turn(signal);
    }
    await write(piece);
    onProgress(todos, total);
    return { todos, lastId };
  });
}

/** As `Archive` says. All of it is one transaction. */
export function importTodos(
  path: string,
  source: AsyncIterable<Uint8Array>,
  maxTodos: number,
  work: Work,
): Promise<Moved> {
  return withoutServer(path, async () => {
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
  { signal, onProgress }: Work,
): Promise<Moved> {
  const database = opening(path, () => connect(path));
  try {
    opening(path, () => migrate(database));
    database.run("BEGIN IMMEDIATE");
    if (storeRow(database).last_id > 0n) {
      throw new Refusal(`${path} has held to-dos already: import into a new file, or move it away first`);
    }
    const insert = database.query("INSERT INTO todos VALUES (?, ?, ?)");
    const reader = new NdjsonReader(MAX_SQLITE_ID);
    const insertAll = (todos: Iterable<Todo>): void => {
      for (const { id, title, done } of todos) {
        if (reader.count > maxTodos) {
          throw new Refusal(`it has more than ${maxTodos} to-dos: say with --max-todos how many may be held`);
        }
        insert.run(id, JSON.stringify(title), done ? 1 : 0);
      }
    };
    for await (const piece of source) {
      insertAll(reader.read(piece));
      onProgress(reader.count, reader.total);
      await turn(signal);
    }
    insertAll(reader.end());
    database
      .query("UPDATE store SET epoch = ?, last_id = ?, n = ?")
      .run(newEpoch(), reader.lastId, reader.count);
    database.run("COMMIT");
    onProgress(reader.count, reader.total);
    return { todos: reader.count, lastId: reader.lastId };
  } finally {
    // What is not committed is rolled back.
    database.close();
  }
}

function countOf(database: Database): number {
  return Number(database.query<{ count: bigint }, []>("SELECT count(*) AS count FROM todos").get()?.count);
}
