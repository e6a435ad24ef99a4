import type { Database } from "bun:sqlite";
import type { TodoId } from "../../../todo.ts";
import { PreconditionError, type SkipDamagedSummary, type TransferOptions } from "../../maintenance.ts";
import {
  type ExportContents,
  encodeHeader,
  encodeIdempotencyRecord,
  encodeKey,
  inBatches,
  writeExport,
} from "../../ndjson.ts";
import { NdjsonReader } from "../../ndjson-reader.ts";
import { type KeyRow, toStoredKey } from "../../records/key-row.ts";
import { assertUndamaged, isValidTodo, type TodoRow } from "../contents.ts";
import { isDamage } from "../errors.ts";
import { checkMark } from "../mark.ts";
import { storedIdempotencyRecords } from "../rows.ts";
import { MAX_SQLITE_ID } from "../store.ts";
import { storeRow } from "../store-row.ts";
import { withUnchangedStore } from "./access.ts";

/** A damaged counter can claim any number of ids. */
const MAX_FAILED_READS = 1_000_000;
const MAX_IDS_SHOWN = 20;

/** Implements `StoreAdmin.exportSkippingDamaged`. */
export async function exportSkippingDamaged(
  path: string,
  write: (text: string) => Promise<void>,
  { keys = "omit", ...task }: TransferOptions,
): Promise<SkipDamagedSummary> {
  // A paused reader of the output must not keep the WAL from being reused, so everything is read first.
  const { contents, problems } = await readSkippingDamaged(path, keys);
  return { ...(await writeExport(contents, write, task)), problems };
}

function readSkippingDamaged(path: string, withKeys: "include" | "omit") {
  return withUnchangedStore(path, (database) => {
    const loss = unlessDamaged(() => checkMark(path).loss);
    database.run("BEGIN");
    const problems: string[] = [];
    const counter = unlessDamaged(() => storeRow(database).last_id);
    const todos = readTodos(database, counter, problems);
    const lastId = [...todos.keys()].reduce((last, id) => (id > last ? id : last), counter ?? 0n);
    // Accepts the lines that an import accepts.
    const parser = new NdjsonReader(MAX_SQLITE_ID, "include");
    const accepts = (line: string): boolean => isReadable(() => [...parser.read(Buffer.from(`${line}\n`))]);
    accepts(encodeHeader({ lastId, todos: 0, keys: 0, idempotencyRecords: 0 }));
    if (withKeys === "include") readKeys(database, accepts, problems);
    if (parser.orphans > 0) problems.push(leftOut(parser.orphans, "API key", "made with a damaged one"));
    readIdempotencyRecords(database, accepts, problems);
    if (counter === undefined) problems.push("the greatest assigned id cannot be read: ids may be reused");
    if (problems.length === 0 && !isReadable(() => assertUndamaged(database)))
      problems.push(
        "the contents differ from their checksum: some of the exported to-dos may be wrong or missing",
      );
    if (loss !== undefined) problems.unshift(`the store has lost changes: ${loss}`);
    const contents: ExportContents = {
      lastId,
      count: todos.size,
      todos: inBatches([...todos].sort(([one], [other]) => (one < other ? -1 : 1)).map(([, json]) => json)),
      keys: withKeys === "include" ? parser.keys : undefined,
      idempotencyRecords: parser.idempotencyRecords,
    };
    return { contents, problems };
  });
}

/** Returns the to-dos by id. */
function readTodos(
  database: Database,
  counter: TodoId | undefined,
  problems: string[],
): ReadonlyMap<TodoId, string> {
  const todos = new Map<TodoId, string>();
  /** The ids of rows that were read but are not to-dos, or have the id of another. */
  const invalid = new Set<bigint>();
  const unreadable = scanRows<TodoRow>(database, "todos", counter, (row) => {
    if (isValidTodo(row, counter) && (todos.get(row.id) ?? row.json) === row.json)
      todos.set(row.id, row.json);
    else invalid.add(row.id);
  });
  if (invalid.size > 0)
    problems.push(`${leftOut(invalid.size, "damaged to-do")}: ${enumerate([...invalid].map(String))}`);
  if (unreadable.length > 0) {
    const ranges = unreadable.map(({ first, last }) => (first === last ? `${first}` : `${first} to ${last}`));
    problems.push(`left out the to-dos that cannot be read, if any, with these ids: ${enumerate(ranges)}`);
  }
  return todos;
}

function readKeys(database: Database, accepts: (line: string) => boolean, problems: string[]): void {
  const lines = new Set<string>();
  const unreadable = scanRows<KeyRow>(database, "keys", undefined, (row) =>
    lines.add(unlessDamaged(() => encodeKey(toStoredKey(row))) ?? `damaged ${row.id}`),
  );
  const invalid = [...lines].filter((line) => !accepts(line)).length;
  if (invalid > 0) problems.push(leftOut(invalid, "damaged API key"));
  if (unreadable.length > 0) problems.push("left out the API keys that cannot be read, if any");
}

function readIdempotencyRecords(
  database: Database,
  accepts: (line: string) => boolean,
  problems: string[],
): void {
  let damaged = 0;
  const areRead = unlessDamaged(() =>
    storedIdempotencyRecords(database, () => damaged++).every((record) =>
      accepts(encodeIdempotencyRecord(record)),
    ),
  );
  if (areRead !== true || damaged > 0)
    problems.push("left out damaged idempotency keys: a repeated request may create a second to-do");
}

/** Consecutive values of rowid. */
interface Range {
  readonly first: bigint;
  last: bigint;
}

/**
 * Reads the rows of a table by rowid. Divides a range that cannot be read. Returns the ranges that cannot
 * be read at all, ascending.
 * @param last the greatest rowid, if it is known
 * @param visit is called at least once with each row
 */
function scanRows<R>(
  database: Database,
  table: "todos" | "keys",
  last: bigint | undefined,
  visit: (row: R) => void,
): readonly Range[] {
  const unreadable: Range[] = [];
  let failedReads = 0;
  let greatest = 0n;
  const read = (where = ""): boolean =>
    isReadable(() => {
      const sql = `SELECT rowid AS number, * FROM ${table} ${where} ORDER BY rowid`;
      for (const row of database.query<R & { number: bigint }, []>(sql).iterate()) {
        if (row.number > greatest) greatest = row.number;
        visit(row);
      }
    });
  const readRange = (first: bigint, end: bigint): void => {
    if (first > end || read(`WHERE rowid BETWEEN ${first} AND ${end}`)) return;
    if (first === end || ++failedReads > MAX_FAILED_READS) {
      const before = unreadable.at(-1);
      if (before !== undefined && before.last + 1n === first) before.last = end;
      else unreadable.push({ first, last: end });
      return;
    }
    const middle = (first + end) / 2n;
    readRange(first, middle);
    readRange(middle + 1n, end);
  };
  if (read()) return [];
  const max = `SELECT max(rowid) AS max FROM ${table}`;
  const found = unlessDamaged(() => database.query<{ max: bigint | null }, []>(max).get()?.max);
  readRange(1n, last ?? found ?? greatest);
  if (last === undefined && found === undefined)
    unreadable.push({ first: greatest + 1n, last: MAX_SQLITE_ID });
  return unreadable;
}

/** Returns the result of a read; `undefined` if it found damage, or values that this program never writes. */
function unlessDamaged<T>(read: () => T): T | undefined {
  try {
    return read();
  } catch (error) {
    if (isDamage(error) || error instanceof PreconditionError || error instanceof TypeError) return undefined;
    throw error;
  }
}

const isReadable = (read: () => unknown): boolean =>
  unlessDamaged(() => {
    read();
    return true;
  }) ?? false;

const leftOut = (count: number, what: string, detail = ""): string =>
  `left out ${count} ${what}${count === 1 ? "" : "s"}${detail && ` ${detail}`}`;

function enumerate(ids: readonly string[]): string {
  const more = ids.length - MAX_IDS_SHOWN;
  return ids.slice(0, MAX_IDS_SHOWN).join(", ") + (more > 0 ? ` and ${more} more` : "");
}
