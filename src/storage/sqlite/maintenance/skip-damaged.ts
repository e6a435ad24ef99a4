import type { Database } from "bun:sqlite";
import { ServiceError } from "../../../error.ts";
import { encodeTodo, parseNewTodo, type Todo, type TodoId } from "../../../todo.ts";
import type { SkipDamagedSummary, TaskOptions } from "../../maintenance.ts";
import { encodeHeader } from "../../ndjson.ts";
import { matchesStoredDigest, otherTexts } from "../contents.ts";
import { isDamage } from "../damage.ts";
import { DigestSum } from "../digest.ts";
import { readMarkFirst } from "../mark.ts";
import { storedDigest, storeRow } from "../store-row.ts";
import { withUnchangedStore, yieldToEventLoop } from "./access.ts";

const LINES_PER_PIECE = 500;
/** A damaged counter can claim any number of ids. */
const MAX_FAILED_READS = 1_000_000;
const MAX_IDS_SHOWN = 20;

/** Implements `StoreAdmin.exportSkippingDamaged`. */
export function exportSkippingDamaged(
  path: string,
  write: (text: string) => Promise<void>,
  { signal, onProgress }: TaskOptions,
): Promise<SkipDamagedSummary> {
  const checkMark = readMarkFirst(path);
  return withUnchangedStore(path, async (database) => {
    const loss = unlessDamaged(() => checkMark(database).loss);
    database.run("BEGIN");
    const reader = new DamagedStoreReader(database);
    reader.readAll();
    const todos = [...reader.todos.values()].sort((one, other) => (one.id < other.id ? -1 : 1));
    const lastId = reader.lastId;
    let lines = [encodeHeader({ lastId, todos: todos.length })];
    for (const [index, todo] of todos.entries()) {
      lines.push(encodeTodo(todo));
      if (lines.length < LINES_PER_PIECE) continue;
      await write(`${lines.join("\n")}\n`);
      lines = [];
      onProgress(index + 1, todos.length);
      await yieldToEventLoop(signal);
    }
    if (lines.length > 0) await write(`${lines.join("\n")}\n`);
    onProgress(todos.length, todos.length);
    return { todos: todos.length, lastId, problems: [...lossOf(loss), ...reader.problems()] };
  });
}

const lossOf = (loss: string | undefined): string[] =>
  loss === undefined ? [] : [`the store has lost changes: ${loss}`];

interface Row {
  readonly id: bigint;
  readonly title: unknown;
  readonly done: unknown;
}

/** Reads the to-dos of a damaged database, as many as possible. */
class DamagedStoreReader {
  readonly todos = new Map<TodoId, Todo>();
  readonly #database: Database;
  /** The ids of rows that were read but are not to-dos, or have the id of another. */
  readonly #invalid = new Set<bigint>();
  /** Ranges of ids that could not be read, ascending. */
  readonly #unreadable: { readonly first: bigint; last: bigint }[] = [];
  readonly #counter: TodoId | undefined;
  #failedReads = 0;

  constructor(database: Database) {
    this.#database = database;
    this.#counter = unlessDamaged(() => storeRow(database).last_id);
  }

  get lastId(): TodoId {
    let last = this.#counter ?? 0n;
    for (const id of this.todos.keys()) if (id > last) last = id;
    return last;
  }

  readAll(): void {
    const all = "SELECT id, title, done FROM todos ORDER BY id";
    if (this.#read(all)) return;
    this.#read(`${all} DESC`);
    this.#readRange(1n, this.lastId);
  }

  problems(): string[] {
    const problems: string[] = [];
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
    if (problems.length === 0 && unlessDamaged(() => this.#matchesDigest()) !== true) {
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

  /** Reads the to-dos of a range. Divides it where that fails. */
  #readRange(first: bigint, last: bigint): void {
    if (first > last) return;
    const where = `WHERE id BETWEEN ${first} AND ${last}`;
    if (this.#read(`SELECT id, title, done FROM todos ${where} ORDER BY id`)) return;
    if (first === last || ++this.#failedReads > MAX_FAILED_READS) {
      this.#addUnreadable(first, last);
      return;
    }
    const middle = (first + last) / 2n;
    this.#readRange(first, middle);
    this.#readRange(middle + 1n, last);
  }

  #addUnreadable(first: bigint, last: bigint): void {
    const before = this.#unreadable.at(-1);
    if (before !== undefined && before.last + 1n === first) before.last = last;
    else this.#unreadable.push({ first, last });
  }

  /** Adds the rows of a query. Returns whether all could be read. */
  #read(sql: string): boolean {
    const done = unlessDamaged(() => {
      for (const row of this.#database.query<Row, []>(sql).iterate()) this.#add(row);
      return true;
    });
    return done ?? false;
  }

  #add(row: Row): void {
    const todo = todoOf(row, this.#counter);
    const known = this.todos.get(row.id);
    if (todo === undefined || (known !== undefined && encodeTodo(known) !== encodeTodo(todo))) {
      this.#invalid.add(row.id);
    } else this.todos.set(row.id, todo);
  }
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
