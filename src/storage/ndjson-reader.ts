import { isUtf8 } from "node:buffer";
import { parseScope } from "../credential/client.ts";
import { parseKeyName, type StoredKey } from "../credential/key.ts";
import { MAX_DURATION_MS, MAX_TIME_MS } from "../duration.ts";
import { ServiceError } from "../error.ts";
import { parseNewTodo, parsePatch, type Todo, type TodoId } from "../todo.ts";
import { isObject } from "../validation.ts";
import {
  PreconditionError,
  type TaskOptions,
  TooManyTodosError,
  type TransferOptions,
  type TransferSummary,
  yieldToEventLoop,
} from "./maintenance.ts";
import { FORMAT, type Header } from "./ndjson.ts";
import type { IdempotencyRecord } from "./records/idempotency.ts";
import { parseMadeWith } from "./records/key-row.ts";

const MAX_LINE_BYTES = 64 * 1024;
const LINE_BREAK = 0x0a;

type Json = Readonly<Record<string, unknown>>;

/** Parses the export format of `ndjson.ts` in chunks. Throws a PreconditionError that names the first invalid line. */
export class NdjsonReader {
  readonly #maxId: TodoId;
  readonly #withKeys: NonNullable<TransferOptions["keys"]>;
  readonly #keys: StoredKey[] = [];
  /** The records of idempotency keys parsed so far. */
  readonly idempotencyRecords: IdempotencyRecord[] = [];
  /** The number of to-dos parsed so far. */
  count = 0;
  /** The ids and hashes of the API keys and records so far, which must be unique. */
  readonly #uniqueValues = new Set<string>();
  #header: Header | undefined;
  #line = 0;
  #greatestId: TodoId = 0n;
  /** The start of an incomplete line. */
  #rest: Uint8Array = new Uint8Array();

  /** @param withKeys whether API keys are wanted; a file that has some is otherwise rejected */
  constructor(maxId: TodoId, withKeys: TransferOptions["keys"] = "omit") {
    this.#maxId = maxId;
    this.#withKeys = withKeys;
  }

  /** The API keys parsed so far, without those made with an absent one, because nobody could revoke them. */
  get keys(): readonly StoredKey[] {
    let kept: readonly StoredKey[] = this.#keys;
    for (let count = Number.POSITIVE_INFINITY; kept.length < count; ) {
      count = kept.length;
      const ids = new Set(kept.map(({ id }) => id));
      kept = kept.filter(({ parent }) => parent?.kind !== "key" || ids.has(parent.id));
    }
    return kept;
  }

  /** The number of API keys that `keys` leaves out. */
  get orphans(): number {
    return this.#keys.length - this.keys.length;
  }

  get summary(): TransferSummary {
    const { count: todos, lastId, keys, orphans } = this;
    if (this.#withKeys === "omit") return { todos, lastId };
    return { todos, lastId, keys: keys.length, ...(orphans > 0 && { orphans }) };
  }

  get lastId(): TodoId {
    return this.#header?.lastId ?? this.#greatestId;
  }

  /** Parses a file in chunks. Yields batches of to-dos. Throws the signal's reason if it is aborted. */
  async *readAll(
    source: AsyncIterable<Uint8Array>,
    maxTodos: number,
    { signal, onProgress = () => {} }: TaskOptions,
  ): AsyncGenerator<readonly Todo[], void, undefined> {
    const limited = (todos: readonly Todo[]): readonly Todo[] => {
      if (this.count > maxTodos) throw new TooManyTodosError(maxTodos);
      return todos;
    };
    for await (const chunk of source) {
      yield limited([...this.read(chunk)]);
      onProgress("importing", this.count, this.#header?.todos);
      await yieldToEventLoop(signal);
    }
    yield limited([...this.end()]);
    onProgress("importing", this.count, this.count);
  }

  /** Parses the next chunk. Yields the to-dos of the lines that it completes. */
  *read(chunk: Uint8Array): Generator<Todo> {
    const end = chunk.lastIndexOf(LINE_BREAK) + 1;
    const lines = Buffer.concat([this.#rest, chunk.subarray(0, end)]);
    const rest = chunk.slice(end);
    this.#rest = end === 0 ? Buffer.concat([lines, rest]) : rest;
    if (end > 0) yield* this.#parseLines(lines.subarray(0, -1));
    if (this.#rest.length > MAX_LINE_BYTES) throw this.#error(tooLong(), this.#line + 1);
  }

  /** Parses a last line without a line break. Throws if the text is incomplete. */
  *end(): Generator<Todo> {
    if (this.#rest.length > 0) yield* this.#parseLines(Buffer.from(this.#rest), "; is the file truncated?");
    if (this.#header === undefined && this.count === 0) throw new PreconditionError("the file has no to-dos");
    if (this.#header === undefined) return;
    const { todos, keys = 0, idempotencyRecords = 0 } = this.#header;
    assertComplete("to-dos", todos, this.count);
    assertComplete("API keys", keys, this.#keys.length);
    assertComplete("idempotency records", idempotencyRecords, this.idempotencyRecords.length);
  }

  *#parseLines(lines: Buffer, hint = ""): Generator<Todo> {
    for (const line of decodeLines(lines)) {
      this.#line++;
      const todo = this.#parseLine(this.#line === 1 ? line?.replace(/^\uFEFF/, "") : line, hint);
      if (todo === undefined) continue;
      this.count++;
      this.#greatestId = todo.id;
      yield todo;
    }
  }

  /** Returns the to-do of a line; `undefined` for any other line. */
  #parseLine(line: string | undefined, hint: string): Todo | undefined {
    if (line === undefined) throw this.#error("is not UTF-8");
    if (isTooLong(line)) throw this.#error(tooLong());
    if (/^[ \t\r]*$/.test(line)) return undefined;
    const value = this.#parseJson(line, hint);
    if (value.todoService !== undefined && this.#header === undefined && this.count === 0) {
      this.#header = this.#parseHeader(value);
      return undefined;
    }
    if (value.apiKey !== undefined && this.#header?.keys !== undefined) {
      this.#keys.push(this.#parseKey(value));
      return undefined;
    }
    if (value.idempotencyRecord !== undefined && this.#header?.idempotencyRecords !== undefined) {
      this.idempotencyRecords.push(this.#parseIdempotencyRecord(value, this.#header.lastId));
      return undefined;
    }
    return this.#parseTodo(value);
  }

  #parseJson(line: string, hint: string): Json {
    let value: unknown;
    try {
      value = JSON.parse(line, reviveBigInt);
    } catch {
      throw this.#error(`is not JSON${hint}`);
    }
    if (isObject(value)) return value;
    throw this.#error("is not an object with id, title and done");
  }

  #parseHeader({ todoService, lastId, todos, keys, idempotencyRecords, ...others }: Json): Header {
    if (this.#parseCount("todoService", todoService) !== FORMAT)
      throw this.#error(`has the format ${todoService}, which is not supported`);
    if (typeof lastId !== "string" || !/^\d{1,20}$/.test(lastId) || BigInt(lastId) > this.#maxId) {
      throw this.#error(`lastId must be a string of digits, at most "${this.#maxId}"`);
    }
    this.#assertNoOthers(others);
    if (keys !== undefined && this.#withKeys === "omit")
      throw this.#error("the file has API keys: add --with-keys to import them, or export without them");
    const countIfAny = (name: string, value: unknown): number | undefined =>
      value === undefined ? undefined : this.#parseCount(name, value);
    return {
      lastId: BigInt(lastId),
      todos: this.#parseCount("todos", todos),
      keys: countIfAny("keys", keys),
      idempotencyRecords: countIfAny("idempotencyRecords", idempotencyRecords),
    };
  }

  #parseCount(name: string, value: unknown): number {
    if (typeof value === "bigint") return Number(value);
    throw this.#error(`${name} must be a whole number`);
  }

  #parseKey(line: Json): StoredKey {
    const { id, name, tokenHash, createdAt, expiresAt, lifetime, lastUsedAt, scope, parent, ...unknown } =
      this.#parseOnly("apiKey", line);
    this.#assertNoOthers(unknown);
    const hash = this.#parseText("tokenHash", tokenHash, /^[0-9a-f]{64}$/, "64 hexadecimal digits");
    const key = {
      id: this.#parseText("id of an API key", id, /^[\w-]{1,64}$/, "1 to 64 letters, digits, - or _"),
      name: this.#atLine(() => parseKeyName(name)),
      scope: this.#atLine(() => parseScope(scope)),
      tokenHash: Buffer.from(hash, "hex"),
      createdAt: this.#milliseconds("createdAt", createdAt),
      ...(expiresAt !== undefined && { expiresAt: this.#milliseconds("expiresAt", expiresAt) }),
      ...(lifetime !== undefined && { lifetime: this.#milliseconds("lifetime", lifetime, MAX_DURATION_MS) }),
      ...(lastUsedAt !== undefined && { lastUsedAt: this.#milliseconds("lastUsedAt", lastUsedAt) }),
      ...(parent !== undefined && this.#parseMadeWith(parent)),
    };
    this.#assertUnique("id", key.id);
    this.#assertUnique("tokenHash", hash);
    return key;
  }

  #parseMadeWith(text: unknown) {
    const made = typeof text === "string" ? parseMadeWith(text) : undefined;
    if (made !== undefined) return made;
    throw this.#error("parent must name a key, a user or a client");
  }

  #parseIdempotencyRecord(line: Json, lastId: TodoId): IdempotencyRecord {
    const { keyHash, titleHash, id, createdAt, ...unknown } = this.#parseOnly("idempotencyRecord", line);
    this.#assertNoOthers(unknown);
    if (typeof id !== "bigint" || id < 1n || id > lastId)
      throw this.#error(`id of an idempotency record must be a whole number from 1 to ${lastId}`);
    const record = {
      keyHash: this.#parseText("keyHash", keyHash, /^[\w-]{43}$/, "a SHA-256 in base64url"),
      titleHash: this.#parseText("titleHash", titleHash, /^[\w-]{43}$/, "a SHA-256 in base64url"),
      id,
      createdAt: this.#milliseconds("createdAt", createdAt),
    };
    this.#assertUnique("keyHash", record.keyHash);
    return record;
  }

  /** Returns the object of a line that has nothing else. */
  #parseOnly(name: string, { [name]: value, ...others }: Json): Json {
    this.#assertNoOthers(others);
    if (isObject(value)) return value;
    throw this.#error(`${name} must be an object`);
  }

  #parseText(name: string, value: unknown, pattern: RegExp, rule: string): string {
    if (typeof value === "string" && pattern.test(value)) return value;
    throw this.#error(`${name} must be ${rule}`);
  }

  #milliseconds(name: string, value: unknown, max = MAX_TIME_MS): number {
    if (typeof value !== "bigint") throw this.#error(`${name} must be a whole number of milliseconds`);
    if (value <= max) return Number(value);
    throw this.#error(
      `${name} must be at most ${max} milliseconds: correct this line, or use an export without API keys`,
    );
  }

  #parseTodo(value: Json): Todo {
    const { id, title: _title, done: _done, ...others } = value;
    this.#assertNoOthers(others);
    const { title } = this.#atLine(() => parseNewTodo(value));
    const { done } = this.#atLine(() => parsePatch(value));
    if (typeof id !== "bigint" || id < 1n || id > this.#maxId) {
      throw this.#error(`id must be a whole number from 1 to ${this.#maxId}`);
    }
    if (id <= this.#greatestId)
      throw this.#error(`id ${id} comes after ${this.#greatestId}: ids must ascend`);
    if (this.#header !== undefined && id > this.#header.lastId) {
      throw this.#error(`id ${id} is greater than the lastId of the header, ${this.#header.lastId}`);
    }
    return { id, title, done };
  }

  #assertUnique(name: string, value: string): void {
    const entry = `${name} ${value}`;
    if (this.#uniqueValues.has(entry)) throw this.#error(`another line has the same ${name}`);
    this.#uniqueValues.add(entry);
  }

  #assertNoOthers(others: Json): void {
    for (const name in others) throw this.#error(`has ${JSON.stringify(name)}, which would be lost`);
  }

  #atLine<T>(parse: () => T): T {
    try {
      return parse();
    } catch (error) {
      if (!(error instanceof ServiceError)) throw error;
      const messages = error.errors?.map(({ field, message }) => `${field} ${message}`);
      throw this.#error(messages?.join(", ") ?? error.message);
    }
  }

  #error(message: string, line = this.#line): PreconditionError {
    return new PreconditionError(`line ${line}: ${message}`);
  }
}

function assertComplete(what: string, expected: number, found: number): void {
  if (expected === found) return;
  throw new PreconditionError(
    `the file is incomplete: the header says ${expected} ${what}, but it has ${found}`,
  );
}

/** Yields the text of each line; `undefined` for a line that is not UTF-8. */
function* decodeLines(lines: Buffer): Generator<string | undefined> {
  if (isUtf8(lines)) {
    yield* lines.toString().split("\n");
    return;
  }
  for (let start = 0, end = 0; end < lines.length; start = end + 1) {
    const next = lines.indexOf(LINE_BREAK, start);
    end = next === -1 ? lines.length : next;
    const line = lines.subarray(start, end);
    yield isUtf8(line) ? line.toString() : undefined;
  }
}

/** A reviver for JSON.parse that returns integers as bigints without losing digits. */
function reviveBigInt(_name: string, value: unknown, context?: { source?: string }): unknown {
  const digits = typeof value === "number" ? context?.source : undefined;
  return digits !== undefined && /^\d+$/.test(digits) ? BigInt(digits) : value;
}

function isTooLong(line: string): boolean {
  // A UTF-16 unit becomes at most three bytes of UTF-8.
  return line.length * 3 > MAX_LINE_BYTES && Buffer.byteLength(line) > MAX_LINE_BYTES;
}

const tooLong = (): string => `is longer than ${MAX_LINE_BYTES} bytes`;
