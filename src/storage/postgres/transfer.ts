import type { SQL } from "bun";
import type { TodoId } from "../../todo.ts";
import { hasKeys, type Operation, PreconditionError, UsedStoreError } from "../maintenance.ts";
import { inBatches, writeExport } from "../ndjson.ts";
import { NdjsonReader } from "../ndjson-reader.ts";
import type { IdempotencyRecord } from "../records/idempotency.ts";
import { joinLines } from "./batch.ts";
import { putKey, storedKeys } from "./keys.ts";
import { withPrimary } from "./primary.ts";
import { ensureSchema, migrate } from "./schema.ts";
import { MAX_POSTGRES_ID, readTodos } from "./store.ts";

/** Implements `StoreAdmin.export` with one transaction, which is a snapshot. */
export const exportTodos: Operation<"export"> = async (url, write, { keys, damaged, ...options }) => {
  if (damaged === "skip") throw new PreconditionError("on PostgreSQL, leave out --skip-damaged");
  return inTransaction(url, "ISOLATION LEVEL REPEATABLE READ READ ONLY", async (sql) => {
    const [totals] = await sql.unsafe<{ last_id: TodoId; todos: bigint }[]>(
      "SELECT * FROM todo_service.totals()",
    );
    if (totals === undefined) throw new Error("the database returned no totals");
    const contents = {
      lastId: totals.last_id,
      count: Number(totals.todos),
      todos: encodedTodos(sql),
      keys: keys === "include" ? await storedKeys(sql) : undefined,
      idempotencyRecords: await storedIdempotencyRecords(sql),
    };
    return writeExport(contents, write, options);
  });
};

async function* encodedTodos(sql: SQL): AsyncGenerator<readonly string[], void, undefined> {
  for await (const rows of readTodos(sql)) yield rows.map(({ todo }) => todo);
}

/** Implements `StoreAdmin.import` in one transaction. Servers wait for it, see the new epoch, and reload everything. */
export const importTodos: Operation<"import"> = (url, source, maxTodos, { keys, ...options }) =>
  inTransaction(url, "ISOLATION LEVEL READ COMMITTED", async (sql) => {
    const [started] = await sql.unsafe<{ ok: boolean }[]>("SELECT todo_service.start_import() AS ok");
    if (started?.ok !== true)
      throw new UsedStoreError("the database has contained to-dos: import into a new database");
    const reader = new NdjsonReader({ maxId: MAX_POSTGRES_ID, maxTodos, keys });
    for await (const todos of reader.readAll(source, options)) {
      await sql.unsafe("SELECT todo_service.import_todos($1, $2, $3)", [
        joinLines(todos, ({ id }) => String(id)),
        joinLines(todos, ({ title }) => JSON.stringify(title)),
        joinLines(todos, ({ done }) => String(done)),
      ]);
    }
    await insertKeys(sql, reader);
    await insertIdempotencyRecords(sql, reader.idempotencyRecords.values());
    await sql.unsafe("SELECT todo_service.finish_import($1)", [reader.lastId]);
    return reader.summary;
  });

/** Implements `StoreAdmin.migrate`. */
export const migrateDatabase: Operation<"migrate"> = (url) =>
  withPrimary(url, (primary) => primary.run((sql) => migrate(sql)));

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

async function storedIdempotencyRecords(sql: SQL): Promise<IdempotencyRecord[]> {
  const rows = await sql.unsafe<(Omit<IdempotencyRecord, "createdAt"> & { createdAt: bigint })[]>(
    "SELECT * FROM todo_service.list_idempotency_records()",
  );
  return rows.map((row) => ({ ...row, createdAt: Number(row.createdAt) }));
}

async function insertIdempotencyRecords(sql: SQL, records: Iterable<IdempotencyRecord>): Promise<void> {
  for (const batch of inBatches(records))
    await sql.unsafe("SELECT todo_service.import_idempotency_records($1, $2, $3, $4)", [
      joinLines(batch, ({ keyHash }) => keyHash),
      joinLines(batch, ({ titleHash }) => titleHash),
      joinLines(batch, ({ id }) => String(id)),
      joinLines(batch, ({ createdAt }) => String(createdAt)),
    ]);
}

async function insertKeys(sql: SQL, { keys }: NdjsonReader): Promise<void> {
  if (keys.size > 0 && (await storedKeys(sql)).length > 0) throw hasKeys();
  for (const key of keys.values()) await putKey(sql, key);
}
