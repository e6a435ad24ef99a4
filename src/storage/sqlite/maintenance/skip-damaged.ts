import type { Database } from "bun:sqlite";
import type { StoredKey } from "../../../credential/key.ts";
import { ServiceError } from "../../../error.ts";
import { encodeTodo, parseNewTodo, type Todo, type TodoId } from "../../../todo.ts";
import { PreconditionError, type SkipDamagedSummary, type TransferOptions } from "../../maintenance.ts";
import {
  encodeHeader,
  encodeIdempotencyRecord,
  encodeKey,
  inBatches,
  NdjsonReader,
  writeExport,
} from "../../ndjson.ts";
import type { IdempotencyRecord } from "../../records/idempotency.ts";
import { type KeyRow, toStoredKey } from "../../records/key-row.ts";
import { matchesStoredDigest, otherTexts, storedIdempotencyRecords } from "../contents.ts";
import { DigestSum } from "../digest.ts";
import { isDamage } from "../errors.ts";
import { readMarkFirst } from "../mark.ts";
import { MAX_SQLITE_ID } from "../store.ts";
import { storedDigest, storeRow } from "../store-row.ts";
import { withUnchangedStore } from "./access.ts";

/** A damaged counter can claim any number of ids. */
const MAX_FAILED_READS = 1_000_000;
const MAX_IDS_SHOWN = 20;

/** Implements `StoreAdmin.exportSkippingDamaged`. */
export function exportSkippingDamaged(
  path: string,
  write: (text: string) => Promise<void>,
  { keys: withKeys, signal }: TransferOptions,
): Promise<SkipDamagedSummary> {
  const checkMark = readMarkFirst(path);
  return withUnchangedStore(path, async (database) => {
    const loss = unlessDamaged(() => checkMark(database).loss);
    database.run("BEGIN");
    const reader = new DamagedStoreReader(database);
    reader.readTodos();
    if (withKeys === "include") reader.readKeys();
    reader.readIdempotencyRecords();
    const contents = {
      lastId: reader.lastId,
      count: reader.todos.size,
      todos: inBatches(reader.sortedTodos().map(encodeTodo)),
      keys: withKeys === "include" ? reader.keys : undefined,
      idempotencyRecords: reader.idempotencyRecords,
    };
    const summary = await writeExport(contents, write, { signal });
    return { ...summary, problems: [...describeLossOf(loss), ...reader.problems()] };
  });
}

const describeLossOf = (loss: string | undefined): string[] =>
  loss === undefined ? [] : [`the store has lost changes: ${loss}`];

interface Row {
  readonly id: bigint;
  readonly title: unknown;
  readonly done: unknown;
}

/** Consecutive values of rowid. */
interface Range {
  readonly first: bigint;
  last: bigint;
}

/** Reads a damaged database, as much as possible. */
class DamagedStoreReader {
  readonly todos = new Map<TodoId, Todo>();
  readonly #database: Database;
  /** The ids of rows that were read but are not to-dos, or have the id of another. */
  readonly #invalid = new Set<bigint>();
  #unreadable: readonly Range[] = [];
  readonly #counter: TodoId | undefined;
  /** Accepts the lines that an import accepts. */
  readonly #parser = new NdjsonReader(MAX_SQLITE_ID, "include");
  readonly #problems: string[] = [];

  constructor(database: Database) {
    this.#database = database;
    this.#counter = unlessDamaged(() => storeRow(database).last_id);
  }

  get lastId(): TodoId {
    let last = this.#counter ?? 0n;
    for (const id of this.todos.keys()) if (id > last) last = id;
    return last;
  }

  /** The API keys. A key that was made with another one is not valid longer than that. */
  get keys(): readonly StoredKey[] {
    const ids = new Set(this.#parser.keys.map(({ id }) => id));
    return this.#parser.keys.filter(({ parent = "" }) => {
      const [, id] = /^(?:code:)?key:(.+)$/.exec(parent) ?? [];
      return id === undefined || ids.has(id);
    });
  }

  get idempotencyRecords(): readonly IdempotencyRecord[] {
    return this.#parser.idempotencyRecords;
  }

  sortedTodos(): Todo[] {
    return [...this.todos.values()].sort((one, other) => (one.id < other.id ? -1 : 1));
  }

  readTodos(): void {
    this.#unreadable = scanRows<Row>(this.#database, "todos", this.#counter, (row) => this.#add(row));
    const header = { lastId: this.lastId, todos: 0, keys: 0, idempotencyRecords: 0 };
    this.#accepts(encodeHeader(header));
  }

  readKeys(): void {
    const lines = new Set<string>();
    const ranges = scanRows<KeyRow>(this.#database, "keys", undefined, (row) =>
      lines.add(unlessInvalid(() => encodeKey(toStoredKey(row))) ?? `damaged ${row.id}`),
    );
    for (const line of lines) this.#accepts(line);
    const invalid = lines.size - this.keys.length;
    if (invalid > 0) this.#problems.push(`left out ${invalid} damaged API ${invalid === 1 ? "key" : "keys"}`);
    if (ranges.length > 0) this.#problems.push("left out the API keys that cannot be read, if any");
  }

  readIdempotencyRecords(): void {
    const areRead = unlessDamaged(() => {
      for (const record of storedIdempotencyRecords(this.#database))
        if (!this.#accepts(encodeIdempotencyRecord(record))) return false;
      return true;
    });
    if (areRead !== true)
      this.#problems.push("left out damaged idempotency keys: a repeated request may create a second to-do");
  }

  problems(): string[] {
    const problems = [...this.#problems];
    if (this.#invalid.size > 0) {
      problems.push(
        `left out ${this.#invalid.size} damaged ${this.#invalid.size === 1 ? "to-do" : "to-dos"}: ${shown([...this.#invalid].map(String))}`,
      );
    }
    if (this.#unreadable.length > 0) {
      const ranges = this.#unreadable.map(({ first, last }) =>
        first === last ? `${first}` : `${first} to ${last}`,
      );
      problems.push(`left out the to-dos that cannot be read, if any, with these ids: ${shown(ranges)}`);
    }
    if (this.#counter === undefined)
      problems.push("the greatest assigned id cannot be read: ids may be reused");
    if (problems.length === 0 && unlessInvalid(() => unlessDamaged(() => this.#matchesDigest())) !== true) {
      problems.push(
        "the contents differ from their digest: some of the exported to-dos may be wrong or missing",
      );
    }
    return problems;
  }

  /** Returns whether the contents have the stored digest, if there is one. */
  #matchesDigest(): boolean {
    if (storedDigest(storeRow(this.#database)) === undefined) return true;
    const sum = new DigestSum();
    for (const todo of this.todos.values()) sum.add(encodeTodo(todo));
    for (const text of otherTexts(this.#database)) sum.add(text);
    return matchesStoredDigest(this.#database, sum.value) === true;
  }

  #add(row: Row): void {
    const todo = todoOf(row, this.#counter);
    const known = this.todos.get(row.id);
    if (todo === undefined || (known !== undefined && encodeTodo(known) !== encodeTodo(todo))) {
      this.#invalid.add(row.id);
    } else this.todos.set(row.id, todo);
  }
  /** Returns whether an import accepts a line. */
  #accepts(line: string): boolean {
    return unlessInvalid(() => [...this.#parser.read(Buffer.from(`${line}\n`))]) !== undefined;
  }
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
  const read = (where = ""): boolean => {
    const sql = `SELECT rowid AS number, * FROM ${table} ${where} ORDER BY rowid`;
    const isComplete = unlessDamaged(() => {
      for (const row of database.query<R & { number: bigint }, []>(sql).iterate()) {
        if (row.number > greatest) greatest = row.number;
        visit(row);
      }
      return true;
    });
    return isComplete ?? false;
  };
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

/** Returns the to-do of a row; `undefined` if this program cannot have written the row. */
function todoOf({ id, title, done }: Row, lastId: TodoId | undefined): Todo | undefined {
  if (id < 1n || (lastId !== undefined && id > lastId)) return undefined;
  if (typeof title !== "string" || (done !== 0n && done !== 1n)) return undefined;
  try {
    const parsed = parseNewTodo({ title: JSON.parse(title) });
    return { id, title: parsed.title, done: done === 1n };
  } catch (error) {
    if (error instanceof SyntaxError || error instanceof ServiceError) return undefined;
    throw error;
  }
}

function unlessDamaged<T>(read: () => T): T | undefined {
  try {
    return read();
  } catch (error) {
    if (isDamage(error)) return undefined;
    throw error;
  }
}

function shown(ids: readonly string[]): string {
  const more = ids.length - MAX_IDS_SHOWN;
  return ids.slice(0, MAX_IDS_SHOWN).join(", ") + (more > 0 ? ` and ${more} more` : "");
}

function unlessInvalid<T>(parse: () => T): T | undefined {
  try {
    return parse();
  } catch (error) {
    // A damaged hash may be no blob.
    if (error instanceof PreconditionError || error instanceof TypeError) return undefined;
    throw error;
  }
}
