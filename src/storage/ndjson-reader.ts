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
  type TransferOptions,
  type TransferSummary,
  tooManyTodos,
  yieldToEventLoop,
} from "./maintenance.ts";
import { FORMAT, type Header } from "./ndjson.ts";
import type { IdempotencyRecord } from "./records/idempotency.ts";
import { parseMadeWith } from "./records/key-row.ts";

const MAX_LINE_BYTES = 64 * 1024;
const TOO_LONG = `is longer than ${MAX_LINE_BYTES} bytes`;
const LINE_BREAK = 0x0a;
const HASH = /^[\w-]{43}$/;

type Json = Readonly<Record<string, unknown>>;

/** What is wrong with a line, without its number. */
class InvalidLineError extends Error {}

/**
 * Parses the export format of `ndjson.ts` in chunks. Throws a PreconditionError that names the first invalid line. Keys and
 * records with the hash of another one are left to the table that takes them.
 */
export class NdjsonReader {
  readonly #maxId: TodoId;
  readonly #withKeys: NonNullable<TransferOptions["keys"]>;
  /** The API keys parsed so far, without those made with a key that no earlier line has, because nobody could revoke them. */
  readonly keys: StoredKey[] = [];
  /** The number of API keys that `keys` leaves out. */
  orphans = 0;
  /** The records of idempotency keys parsed so far. */
  readonly idempotencyRecords: IdempotencyRecord[] = [];
  /** The number of to-dos parsed so far. */
  count = 0;
  readonly #keyIds = new Set<string>();
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
      if (this.count > maxTodos) throw tooManyTodos(maxTodos);
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
    if (this.#rest.length > MAX_LINE_BYTES)
      throw new PreconditionError(`line ${this.#line + 1}: ${TOO_LONG}`);
  }

  /** Parses a last line without a line break. Throws if the text is incomplete. */
  *end(): Generator<Todo> {
    if (this.#rest.length > 0) yield* this.#parseLines(Buffer.from(this.#rest), "; is the file truncated?");
    if (this.#header === undefined && this.count === 0) throw new PreconditionError("the file has no to-dos");
    if (this.#header === undefined) return;
    const { todos, keys = 0, idempotencyRecords = 0 } = this.#header;
    assertComplete("to-dos", todos, this.count);
    assertComplete("API keys", keys, this.keys.length + this.orphans);
    assertComplete("idempotency records", idempotencyRecords, this.idempotencyRecords.length);
  }

  *#parseLines(lines: Buffer, hint = ""): Generator<Todo> {
    for (const line of decodeLines(lines)) {
      this.#line++;
      const todo = this.#parseLine(line, hint);
      if (todo === undefined) continue;
      this.count++;
      this.#greatestId = todo.id;
      yield todo;
    }
  }

  /** Returns the to-do of a line; `undefined` for any other line. */
  #parseLine(line: string | undefined, hint: string): Todo | undefined {
    try {
      const text = this.#line === 1 ? line?.replace(/^\uFEFF/, "") : line;
      if (text !== undefined && /^[ \t\r]*$/.test(text)) return undefined;
      return this.#parseValue(parseJson(text, hint));
    } catch (error) {
      if (!(error instanceof InvalidLineError || error instanceof ServiceError)) throw error;
      const violations = error instanceof ServiceError ? error.errors : undefined;
      const messages = violations?.map(({ field, message }) => `${field} ${message}`) ?? [error.message];
      throw new PreconditionError(`line ${this.#line}: ${messages.join(", ")}`);
    }
  }

  #parseValue(value: Json): Todo | undefined {
    const { todoService, apiKey, idempotencyRecord } = value;
    if (todoService !== undefined && this.#header === undefined && this.count === 0)
      this.#header = this.#parseHeader(value);
    else if (apiKey !== undefined && this.#header?.keys !== undefined) this.#addKey(value);
    else if (idempotencyRecord !== undefined && this.#header?.idempotencyRecords !== undefined)
      this.idempotencyRecords.push(parseRecord(value, this.#header.lastId));
    else return this.#parseTodo(value);
    return undefined;
  }

  #parseHeader(value: Json): Header {
    assertOnly(value, ["todoService", "lastId", "todos", "keys", "idempotencyRecords"]);
    const { todoService, lastId, todos } = value;
    if (count("todoService", todoService) !== FORMAT)
      throw new InvalidLineError(`has the format ${todoService}, which is not supported`);
    if (typeof lastId !== "string" || !/^\d{1,20}$/.test(lastId) || BigInt(lastId) > this.#maxId)
      throw new InvalidLineError(`lastId must be a string of digits, at most "${this.#maxId}"`);
    if (value.keys !== undefined && this.#withKeys === "omit")
      throw new InvalidLineError(
        "the file has API keys: add --with-keys to import them, or export without them",
      );
    const countIfAny = (name: "keys" | "idempotencyRecords") =>
      value[name] === undefined ? undefined : count(name, value[name]);
    return {
      lastId: BigInt(lastId),
      todos: count("todos", todos),
      keys: countIfAny("keys"),
      idempotencyRecords: countIfAny("idempotencyRecords"),
    };
  }

  #addKey(line: Json): void {
    const key = parseKey(line);
    if (this.#keyIds.has(key.id)) throw new InvalidLineError("another line has the same id");
    if (key.parent?.kind === "key" && !this.#keyIds.has(key.parent.id)) {
      this.orphans++;
      return;
    }
    this.#keyIds.add(key.id);
    this.keys.push(key);
  }

  #parseTodo(value: Json): Todo {
    assertOnly(value, ["id", "title", "done"]);
    const { title } = parseNewTodo(value);
    const { done } = parsePatch(value);
    const id = wholeNumber("id", value.id, this.#maxId, 1n);
    if (id <= this.#greatestId)
      throw new InvalidLineError(`id ${id} comes after ${this.#greatestId}: ids must ascend`);
    if (this.#header !== undefined && id > this.#header.lastId)
      throw new InvalidLineError(`id ${id} is greater than the lastId of the header, ${this.#header.lastId}`);
    return { id, title, done };
  }
}

function parseKey(line: Json): StoredKey {
  const value = parseMember(line, "apiKey", [
    ...["id", "name", "tokenHash", "createdAt", "expiresAt", "lifetime", "lastUsedAt", "scope", "parent"],
  ]);
  const time = (name: "expiresAt" | "lifetime" | "lastUsedAt", max: number) =>
    value[name] !== undefined && { [name]: count(name, value[name], max) };
  const made = typeof value.parent === "string" ? parseMadeWith(value.parent) : undefined;
  if (value.parent !== undefined && made === undefined)
    throw new InvalidLineError("parent must name a key, a user or a client");
  return {
    id: text("id of an API key", value.id, /^[\w-]{1,64}$/, "1 to 64 letters, digits, - or _"),
    name: parseKeyName(value.name),
    scope: parseScope(value.scope),
    tokenHash: Buffer.from(
      text("tokenHash", value.tokenHash, /^[0-9a-f]{64}$/, "64 hexadecimal digits"),
      "hex",
    ),
    createdAt: count("createdAt", value.createdAt, MAX_TIME_MS),
    ...time("expiresAt", MAX_TIME_MS),
    ...time("lifetime", MAX_DURATION_MS),
    ...time("lastUsedAt", MAX_TIME_MS),
    ...made,
  };
}

function parseRecord(line: Json, lastId: TodoId): IdempotencyRecord {
  const value = parseMember(line, "idempotencyRecord", ["keyHash", "titleHash", "id", "createdAt"]);
  return {
    keyHash: text("keyHash", value.keyHash, HASH, "a SHA-256 in base64url"),
    titleHash: text("titleHash", value.titleHash, HASH, "a SHA-256 in base64url"),
    id: wholeNumber("id of an idempotency record", value.id, lastId, 1n),
    createdAt: count("createdAt", value.createdAt, MAX_TIME_MS),
  };
}

function parseJson(line: string | undefined, hint: string): Json {
  if (line === undefined) throw new InvalidLineError("is not UTF-8");
  // A UTF-16 unit becomes at most three bytes of UTF-8.
  if (line.length * 3 > MAX_LINE_BYTES && Buffer.byteLength(line) > MAX_LINE_BYTES)
    throw new InvalidLineError(TOO_LONG);
  let value: unknown;
  try {
    value = JSON.parse(line, reviveBigInt);
  } catch {
    throw new InvalidLineError(`is not JSON${hint}`);
  }
  if (isObject(value)) return value;
  throw new InvalidLineError("is not an object with id, title and done");
}

/** Returns the object that is the only member of a line. */
function parseMember(line: Json, name: string, members: readonly string[]): Json {
  assertOnly(line, [name]);
  const value = line[name];
  if (!isObject(value)) throw new InvalidLineError(`${name} must be an object`);
  assertOnly(value, members);
  return value;
}

function assertOnly(value: Json, names: readonly string[]): void {
  for (const name in value)
    if (!names.includes(name)) throw new InvalidLineError(`has ${JSON.stringify(name)}, which would be lost`);
}

function text(name: string, value: unknown, pattern: RegExp, rule: string): string {
  if (typeof value === "string" && pattern.test(value)) return value;
  throw new InvalidLineError(`${name} must be ${rule}`);
}

function wholeNumber(name: string, value: unknown, max: TodoId, min = 0n): bigint {
  if (typeof value === "bigint" && value >= min && value <= max) return value;
  throw new InvalidLineError(`${name} must be a whole number from ${min} to ${max}`);
}

/** Returns a number of things or of milliseconds. */
const count = (name: string, value: unknown, max = Number.MAX_SAFE_INTEGER): number =>
  Number(wholeNumber(name, value, BigInt(max)));

function assertComplete(what: string, expected: number, found: number): void {
  if (expected === found) return;
  throw new PreconditionError(
    `the file is incomplete: the header says ${expected} ${what}, but it has ${found}`,
  );
}

/** Yields the text of each line; `undefined` for a line that is not UTF-8. */
function* decodeLines(lines: Buffer): Generator<string | undefined> {
  if (isUtf8(lines)) return yield* lines.toString().split("\n");
  for (const line of lines.toString("latin1").split("\n")) {
    const bytes = Buffer.from(line, "latin1");
    yield isUtf8(bytes) ? bytes.toString() : undefined;
  }
}

/** A reviver for JSON.parse that returns integers as bigints without losing digits. */
function reviveBigInt(_name: string, value: unknown, context?: { source?: string }): unknown {
  const digits = typeof value === "number" ? context?.source : undefined;
  return digits !== undefined && /^\d+$/.test(digits) ? BigInt(digits) : value;
}
