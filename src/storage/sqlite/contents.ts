import type { Database } from "bun:sqlite";
import { MAX_DURATION_MS, MAX_TIME_MS } from "../../duration.ts";
import { ServiceError } from "../../error.ts";
import { errorMessage } from "../../error-message.ts";
import { encodeTodo, parseNewTodo, parsePatch, type TodoId } from "../../todo.ts";
import type { OnProgress } from "../maintenance.ts";
import { type KeyRow, toStoredKey } from "../records/key-row.ts";
import type { TodoRun } from "../table/segment.ts";
import { Checksum, countersText, keyText } from "./checksum.ts";
import { assertReadable, DamageError, isDamage } from "./errors.ts";
import { storedChecksum, storeRow } from "./store-row.ts";
import { readTodoRuns } from "./todo-rows.ts";

/** A row of `todos`. */
export interface TodoRow {
  readonly id: bigint;
  /** The encoded to-do, as responses have it. */
  readonly json: string;
}

/** Returns all to-dos by ascending id. */
const todoRows = (database: Database): Iterable<TodoRow> =>
  database.query<TodoRow, []>("SELECT id, json FROM todos ORDER BY id").iterate();

/** Yields all encoded to-dos by ascending id. */
export function* storedTodos(database: Database): Generator<string> {
  for (const { json } of todoRows(database)) yield json;
}

export function countRows(database: Database, table: "todos" | "source.todos"): number {
  return Number(database.query<{ count: bigint }, []>(`SELECT count(*) AS count FROM ${table}`).get()?.count);
}

/** Computes the checksum of the current contents. Calls a function with all to-dos. */
function computeChecksum(database: Database, visit: (todos: TodoRun) => void = () => {}): Checksum {
  const checksum = new Checksum();
  for (const todos of readTodoRuns(database, checksum)) visit(todos);
  for (const row of database.query<KeyRow, []>("SELECT * FROM keys").iterate())
    checksum.add(keyText(toStoredKey(row)));
  checksum.add(countersText(storeRow(database)));
  return checksum;
}

/** Throws a DamageError for a time beyond the range of a Date, because nothing could show it. */
function assertDates(database: Database): void {
  const found = database
    .query(
      `SELECT 1 FROM keys WHERE created_at NOT BETWEEN -?1 AND ?1 OR expires_at NOT BETWEEN -?1 AND ?1
         OR lifetime NOT BETWEEN 0 AND ?2`,
    )
    .get(MAX_TIME_MS, MAX_DURATION_MS);
  if (found !== null) throw new DamageError("a time of an API key is out of range");
}

/** Throws a DamageError if the structure or the contents of a database are damaged. */
export function assertIntact(database: Database, onProgress?: OnProgress): void {
  const [found] = findStructuralDamage(database);
  if (found !== undefined) throw new DamageError(found);
  assertUndamaged(database, visitor(database, "checking", onProgress));
}

/** Returns a function that reports how many to-dos were visited, to be called with all of them. */
export function visitor(
  database: Database,
  step: string,
  onProgress: OnProgress = () => {},
): (todos: TodoRun) => void {
  const total = countRows(database, "todos");
  let done = 0;
  return ({ count }) => {
    done += count;
    onProgress(step, done, total);
  };
}

/** Computes the checksum of the current contents and stores it. */
export function storeChecksum(database: Database): void {
  const { first, second } = computeChecksum(database);
  database.query("UPDATE store SET checksum_a = ?, checksum_b = ?").run(first, second);
}

/**
 * Throws a DamageError if the contents differ from the stored checksum.
 * @param visit called with all to-dos
 */
export function assertUndamaged(database: Database, visit?: (todos: TodoRun) => void): void {
  // A missing table is damage, although a damaged row of these is dropped.
  assertReadable(() => database.query("SELECT 1 FROM events, idempotency_records LIMIT 1").get());
  assertDates(database);
  const computed = assertReadable(() => computeChecksum(database, visit));
  const row = storeRow(database);
  if (computed.equals(storedChecksum(row))) return;
  let invalid = 0;
  for (const todo of todoRows(database)) if (!isValidTodo(todo, row.last_id)) invalid++;
  throw new DamageError(
    invalid > 0
      ? `${invalid} of its to-dos are invalid`
      : "its to-dos, API keys or counters differ from their checksum",
  );
}

/** Returns whether this program can have written a row of `todos`. */
export function isValidTodo({ id, json }: TodoRow, lastId: TodoId | undefined): boolean {
  if (id < 1n || (lastId !== undefined && id > lastId)) return false;
  try {
    const value: unknown = JSON.parse(json);
    return json === encodeTodo({ id, ...parseNewTodo(value), ...parsePatch(value) });
  } catch (error) {
    if (error instanceof SyntaxError || error instanceof ServiceError) return false;
    throw error;
  }
}

/** Returns what PRAGMA integrity_check finds; an empty array for a sound file. */
export function findStructuralDamage(database: Database): string[] {
  try {
    const found = database.query<{ integrity_check: string }, []>("PRAGMA integrity_check").all();
    return found.flatMap(({ integrity_check: line }) => (line === "ok" ? [] : line.split("\n")));
  } catch (error) {
    if (isDamage(error)) return [errorMessage(error)];
    throw error;
  }
}
