import type { SQL } from "bun";
import type { Todo, TodoId } from "../../todo.ts";
import {
  hasKeys,
  type MigrationSummary,
  PreconditionError,
  TooManyTodosError,
  type TransferOptions,
  type TransferSummary,
} from "../maintenance.ts";
import { encodeHeader, encodeKey, NdjsonReader } from "../ndjson.ts";
import { type KeyRow, toStoredKey } from "../records/key-row.ts";
import { joinLines } from "./batch.ts";
import { toValues } from "./keys.ts";
import { withPrimary } from "./primary.ts";
import { ensureSchema, migrate } from "./schema.ts";
import { FETCH_SIZE, MAX_POSTGRES_ID, readTodos } from "./store.ts";

/** Implements `StoreAdmin.export` with one transaction, which is a snapshot. */
export function exportTodos(
  url: string,
  write: (text: string) => Promise<void>,
  { signal, onProgress, keys: withKeys }: TransferOptions,
): Promise<TransferSummary> {
  return inTransaction(url, "ISOLATION LEVEL REPEATABLE READ READ ONLY", async (sql) => {
    const [totals] = await sql.unsafe<{ last_id: TodoId; todos: bigint }[]>(
      "SELECT * FROM todo_service.totals()",
    );
    if (totals === undefined) throw new Error("the database returned no totals");
    const [lastId, total] = [totals.last_id, Number(totals.todos)];
    const keys = withKeys === "include" ? (await storedKeys(sql)).map(encodeKey) : undefined;
    await write(`${encodeHeader({ lastId, todos: total, keys: keys?.length })}\n`);
    let todos = 0;
    for await (const rows of readTodos(sql)) {
      signal.throwIfAborted();
      if (rows.length > 0) await write(rows.map(({ todo }) => `${todo}\n`).join(""));
      todos += rows.length;
      onProgress(todos, total);
    }
    if (keys !== undefined && keys.length > 0) await write(keys.map((key) => `${key}\n`).join(""));
    return { todos, lastId, keys: keys?.length };
  });
}

/** Implements `StoreAdmin.import` in one transaction. Servers wait for it, see the new epoch, and reload everything. */
export function importTodos(
  url: string,
  source: AsyncIterable<Uint8Array>,
  maxTodos: number,
  { signal, onProgress, keys }: TransferOptions,
): Promise<TransferSummary> {
  return inTransaction(url, "ISOLATION LEVEL READ COMMITTED", async (sql) => {
    const [started] = await sql.unsafe<{ ok: boolean }[]>("SELECT todo_service.start_import() AS ok");
    if (started?.ok !== true)
      throw new PreconditionError("the database has contained to-dos: import into a new database");
    const reader = new NdjsonReader(MAX_POSTGRES_ID, keys);
    let batch: Todo[] = [];
    const insert = async (minimum: number): Promise<void> => {
      if (reader.count > maxTodos) throw new TooManyTodosError(maxTodos);
      if (batch.length < minimum) return;
      await sql.unsafe("SELECT todo_service.import_todos($1, $2, $3)", [
        joinLines(batch, ({ id }) => String(id)),
        joinLines(batch, ({ title }) => JSON.stringify(title)),
        joinLines(batch, ({ done }) => String(done)),
      ]);
      batch = [];
    };
    for await (const chunk of source) {
      for (const todo of reader.read(chunk)) batch.push(todo);
      await insert(FETCH_SIZE);
      onProgress(reader.count, reader.total);
      signal.throwIfAborted();
    }
    for (const todo of reader.end()) batch.push(todo);
    await insert(1);
    await insertKeys(sql, reader);
    await sql.unsafe("SELECT todo_service.finish_import($1)", [reader.lastId]);
    onProgress(reader.count, reader.total);
    const { count: todos, lastId } = reader;
    return { todos, lastId, ...(keys === "include" && { keys: reader.keys.length }) };
  });
}

/** Implements `StoreAdmin.migrate`. */
export function migrateDatabase(url: string): Promise<MigrationSummary> {
  return withPrimary(url, (primary) => primary.run((sql) => migrate(sql)));
}

function inTransaction<T>(url: string, mode: string, work: (sql: SQL) => Promise<T>): Promise<T> {
  return withPrimary(url, async (primary) => {
    await primary.run(ensureSchema);
    return primary.runUnlimited((pool) =>
      pool.begin(mode, async (sql) => {
        // The transaction waits for the file or the pipe of the command.
        await sql.unsafe("SET LOCAL idle_in_transaction_session_timeout = 0");
        return work(sql);
      }),
    );
  });
}

const storedKeys = async (sql: SQL) =>
  (await sql.unsafe<KeyRow[]>("SELECT * FROM todo_service.list_keys()")).map(toStoredKey);

async function insertKeys(sql: SQL, { keys }: NdjsonReader): Promise<void> {
  if (keys.length > 0 && (await storedKeys(sql)).length > 0) throw hasKeys();
  for (const key of keys)
    await sql.unsafe("SELECT todo_service.import_key($1, $2, $3, $4, $5, $6, $7, $8)", toValues(key));
}
