import { parseScope } from "../credential/client.ts";
import { parseKeyName, type StoredKey } from "../credential/key.ts";
import { ServiceError } from "../error.ts";
import { parseNewTodo, parsePatch, type Todo, type TodoId } from "../todo.ts";
import { isObject, MAX_DURATION_MS, MAX_TIME_MS } from "../validation.ts";
import {
  InvalidFileError,
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
const SHA_256 = [/^[\w-]{43}$/, "a SHA-256 in base64url"] as const;

type Json = Readonly<Record<string, unknown>>;

/** What is wrong with a line, without its number. */
class InvalidLineError extends Error {}

export interface ReaderOptions {
  /** The greatest possible id. */
  readonly maxId: TodoId;
  readonly maxTodos?: number;
  /** Whether API keys are wanted (default: omit). A file that has some is otherwise rejected. */
  readonly keys?: TransferOptions["keys"];
}

/** Parses the export format of `ndjson.ts` in chunks. Throws an InvalidFileError that names the first invalid line. */
export class NdjsonReader {
  readonly #options: ReaderOptions;
  /** By id, without those made with a key that no earlier line has, because nobody could revoke them. */
  readonly keys = new Map<string, StoredKey>();
  /** The number of API keys that `keys` leaves out. */
  orphans = 0;
  /** By the hash of the idempotency key. */
  readonly idempotencyRecords = new Map<string, IdempotencyRecord>();
  /** The number of to-dos parsed so far. */
  count = 0;
  /** The names and values that identify a line. */
  readonly #unique = new Set<string>();
  #header: Header | undefined;
  #line = 0;
  #greatestId: TodoId = 0n;
  /** The start of an incomplete line. */
  #rest = Buffer.alloc(0);

  constructor(options: ReaderOptions) {
    this.#options = options;
  }

  get summary(): TransferSummary {
    const { count: todos, lastId, keys, orphans } = this;
    if (this.#options.keys !== "include") return { todos, lastId };
    return { todos, lastId, keys: keys.size, ...(orphans > 0 && { orphans }) };
  }

  get lastId(): TodoId {
    return this.#header?.lastId ?? this.#greatestId;
  }

  /** Parses a file in chunks. Yields batches of to-dos. Throws the signal's reason if it is aborted. */
  async *readAll(
    source: AsyncIterable<Uint8Array>,
    { signal, onProgress = () => {} }: TaskOptions,
  ): AsyncGenerator<readonly Todo[], void, undefined> {
    for await (const chunk of source) {
      yield this.read(chunk);
      onProgress("importing", this.count, this.#header?.todos);
      await yieldToEventLoop(signal);
    }
    yield this.end();
    onProgress("importing", this.count, this.count);
  }

  /** Parses the next chunk. Returns the to-dos of the lines that it completes. */
  read(chunk: Uint8Array): readonly Todo[] {
    const bytes = Buffer.concat([this.#rest, chunk]);
    const todos: Todo[] = [];
    let start = 0;
    for (let end = bytes.indexOf(LINE_BREAK); end >= 0; end = bytes.indexOf(LINE_BREAK, start)) {
      todos.push(...this.#parseLine(bytes.subarray(start, end)));
      start = end + 1;
    }
    this.#rest = bytes.subarray(start);
    if (this.#rest.length > MAX_LINE_BYTES) throw new InvalidFileError(`line ${this.#line + 1}: ${TOO_LONG}`);
    return todos;
  }

  /** Parses a last line without a line break. Throws if the file is incomplete. */
  end(): readonly Todo[] {
    const last = this.#parseLine(this.#rest, "; is the file truncated?");
    if (this.#header === undefined && this.count === 0) throw new InvalidFileError("the file has no to-dos");
    const { todos = this.count, keys = 0, idempotencyRecords = 0 } = this.#header ?? {};
    assertComplete("to-dos", todos, this.count);
    assertComplete("API keys", keys, this.keys.size + this.orphans);
    assertComplete("idempotency records", idempotencyRecords, this.idempotencyRecords.size);
    return last;
  }

  /** Returns the to-do of a line; none for any other line. */
  #parseLine(bytes: Uint8Array, hint?: string): readonly Todo[] {
    this.#line++;
    try {
      const text = decodeLine(bytes);
      return /^[ \t\r]*$/.test(text) ? [] : this.#parseValue(parseJson(text, hint));
    } catch (error) {
      if (!(error instanceof InvalidLineError || error instanceof ServiceError)) throw error;
      const violations = error instanceof ServiceError ? error.errors : undefined;
      const messages = violations?.map(({ field, message }) => `${field} ${message}`) ?? [error.message];
      throw new InvalidFileError(`line ${this.#line}: ${messages.join(", ")}`);
    }
  }

  #parseValue(value: Json): readonly Todo[] {
    const { todoService, apiKey, idempotencyRecord } = value;
    if (todoService !== undefined && this.#header === undefined && this.count === 0)
      this.#header = this.#parseHeader(value);
    else if (apiKey !== undefined && this.#header?.keys !== undefined) this.#addKey(parseKey(value));
    else if (idempotencyRecord !== undefined && this.#header?.idempotencyRecords !== undefined) {
      const record = parseRecord(value, this.#header.lastId);
      this.#assertNew("keyHash", record.keyHash);
      this.idempotencyRecords.set(record.keyHash, record);
    } else return [this.#parseTodo(value)];
    return [];
  }

  #parseHeader(value: Json): Header {
    assertOnly(value, ["todoService", "lastId", "todos", "keys", "idempotencyRecords"]);
    if (count(value, "todoService") !== FORMAT)
      throw new InvalidLineError(`has the format ${value.todoService}, which is not supported`);
    const lastId = BigInt(text(value, "lastId", /^\d{1,20}$/, "a string of digits"));
    if (value.keys !== undefined && this.#options.keys !== "include")
      throw new InvalidLineError(
        "the file has API keys: add --with-keys to import them, or export without them",
      );
    return {
      lastId: wholeNumber("lastId", lastId, this.#options.maxId),
      todos: count(value, "todos"),
      ...countIfAny(value, "keys"),
      ...countIfAny(value, "idempotencyRecords"),
    };
  }

  #addKey(key: StoredKey): void {
    this.#assertNew("id", key.id);
    this.#assertNew("tokenHash", Buffer.from(key.tokenHash).toString("hex"));
    if (key.parent?.kind === "key" && !this.keys.has(key.parent.id)) this.orphans++;
    else this.keys.set(key.id, key);
  }

  /** Throws if an earlier line has a value that identifies a line. */
  #assertNew(name: string, value: string): void {
    const member = `${name} ${value}`;
    if (this.#unique.has(member))
      throw new InvalidLineError(
        `an earlier line has the same ${name}: keep one of them, and lower the count in the header`,
      );
    this.#unique.add(member);
  }

  #parseTodo(value: Json): Todo {
    const { maxId, maxTodos = Number.POSITIVE_INFINITY } = this.#options;
    assertOnly(value, ["id", "title", "done"]);
    const { title } = parseNewTodo(value);
    const { done } = parsePatch(value);
    const id = wholeNumber("id", value.id, maxId, 1n);
    if (id <= this.#greatestId)
      throw new InvalidLineError(`id ${id} comes after ${this.#greatestId}: ids must ascend`);
    if (this.#header !== undefined && id > this.#header.lastId)
      throw new InvalidLineError(`id ${id} is greater than the lastId of the header, ${this.#header.lastId}`);
    this.#greatestId = id;
    if (++this.count > maxTodos) throw tooManyTodos(maxTodos);
    return { id, title, done };
  }
}

function parseKey(line: Json): StoredKey {
  const value = parseMember(line, "apiKey", [
    ...["id", "name", "tokenHash", "createdAt", "expiresAt", "lifetime", "lastUsedAt", "scope", "parent"],
  ]);
  return {
    id: text(value, "id", /^[\w-]{1,64}$/, "1 to 64 letters, digits, - or _"),
    name: parseKeyName(value.name),
    scope: parseScope(value.scope),
    tokenHash: Buffer.from(text(value, "tokenHash", /^[0-9a-f]{64}$/, "64 hexadecimal digits"), "hex"),
    createdAt: count(value, "createdAt", MAX_TIME_MS),
    ...countIfAny(value, "expiresAt", MAX_TIME_MS),
    ...countIfAny(value, "lifetime", MAX_DURATION_MS),
    ...countIfAny(value, "lastUsedAt", MAX_TIME_MS),
    ...(value.parent !== undefined && parseMadeWith(value.parent)),
  };
}

function parseRecord(line: Json, lastId: TodoId): IdempotencyRecord {
  const value = parseMember(line, "idempotencyRecord", ["keyHash", "titleHash", "id", "createdAt"]);
  return {
    keyHash: text(value, "keyHash", ...SHA_256),
    titleHash: text(value, "titleHash", ...SHA_256),
    id: wholeNumber("id", value.id, lastId, 1n),
    createdAt: count(value, "createdAt", MAX_TIME_MS),
  };
}

const decoder = new TextDecoder("utf-8", { fatal: true });

/** Returns the text of a line, without a byte order mark. */
function decodeLine(bytes: Uint8Array): string {
  if (bytes.length > MAX_LINE_BYTES) throw new InvalidLineError(TOO_LONG);
  try {
    return decoder.decode(bytes);
  } catch {
    throw new InvalidLineError("is not UTF-8");
  }
}

function parseJson(line: string, hint = ""): Json {
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

function text(object: Json, name: string, pattern: RegExp, rule: string): string {
  const value = object[name];
  if (typeof value === "string" && pattern.test(value)) return value;
  throw new InvalidLineError(`${name} must be ${rule}`);
}

function wholeNumber(name: string, value: unknown, max: TodoId, min = 0n): bigint {
  if (typeof value === "bigint" && value >= min && value <= max) return value;
  throw new InvalidLineError(`${name} must be a whole number from ${min} to ${max}`);
}

/** Returns a number of things or of milliseconds. */
const count = (object: Json, name: string, max = Number.MAX_SAFE_INTEGER): number =>
  Number(wholeNumber(name, object[name], BigInt(max)));

const countIfAny = (object: Json, name: string, max?: number) =>
  object[name] !== undefined && { [name]: count(object, name, max) };

function assertComplete(what: string, expected: number, found: number): void {
  if (expected === found) return;
  throw new InvalidFileError(
    `the file is incomplete: the header says ${expected} ${what}, but it has ${found}`,
  );
}

/** A reviver for JSON.parse that returns integers as bigints without losing digits. */
function reviveBigInt(_name: string, value: unknown, context?: { source?: string }): unknown {
  const digits = typeof value === "number" ? context?.source : undefined;
  return digits !== undefined && /^\d+$/.test(digits) ? BigInt(digits) : value;
}
