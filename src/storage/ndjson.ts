/**
 * To-dos as text: a line of JSON each, as they are sent, by ascending id. The first line is a header, such as
 * `{"todoService":1,"lastId":"12","todos":10}`; a file by another hand can do without.
 */
import { isUtf8 } from "node:buffer";
import { Failure } from "../failure.ts";
import { isObject } from "../field.ts";
import { parseNewTodo, parsePatch, type Todo, type TodoId } from "../todo.ts";
import { Refusal } from "./archive.ts";

const FORMAT = 1;
const MOST_LINE_BYTES = 64 * 1024;
const LINE_BREAK = 0x0a;

export interface Header {
  /** The greatest id ever given; text, for many readers of JSON lose digits past 2^53. */
  readonly lastId: TodoId;
  readonly todos: number;
}

export function encodeHeader({ lastId, todos }: Header): string {
  return `{"todoService":${FORMAT},"lastId":"${lastId}","todos":${todos}}`;
}

type Json = Readonly<Record<string, unknown>>;

/** Reads such a text piece by piece, exactly; throws a Refusal that names the first line that is wrong. */
export class NdjsonReader {
  readonly #maxId: TodoId;
  #header: Header | undefined;
  #line = 0;
  #count = 0;
  #greatestId: TodoId = 0n;
  /** The start of a line whose end has not come yet. */
  #rest: Uint8Array = new Uint8Array();

  constructor(maxId: TodoId) {
    this.#maxId = maxId;
  }

  /** How many to-dos have come. */
  get count(): number {
    return this.#count;
  }

  /** How many to-dos there are, where the header said so. */
  get total(): number | undefined {
    return this.#header?.todos;
  }

  get lastId(): TodoId {
    return this.#header?.lastId ?? this.#greatestId;
  }

  /** The to-dos of the lines that end in the next piece of the text. */
  *read(piece: Uint8Array): Generator<Todo> {
    const end = piece.lastIndexOf(LINE_BREAK) + 1;
    const lines = Buffer.concat([this.#rest, piece.subarray(0, end)]);
    const rest = piece.slice(end);
    this.#rest = end === 0 ? Buffer.concat([lines, rest]) : rest;
    if (end > 0) yield* this.#parseLines(lines.subarray(0, -1));
    if (this.#rest.length > MOST_LINE_BYTES) throw this.#wrong(tooLong(), this.#line + 1);
  }

  /** The to-do of the last line, when no line break ends it. Throws when the text is not whole. */
  *end(): Generator<Todo> {
    if (this.#rest.length > 0) yield* this.#parseLines(Buffer.from(this.#rest), "; is the file cut off?");
    if (this.#header === undefined && this.#count === 0) throw new Refusal("there is no to-do in it");
    if (this.#header !== undefined && this.#header.todos !== this.#count) {
      throw new Refusal(
        `it is not whole: its header tells of ${this.#header.todos} to-dos, and ${this.#count} came`,
      );
    }
  }

  *#parseLines(lines: Buffer, hint = ""): Generator<Todo> {
    for (const line of decodeLines(lines)) {
      this.#line++;
      const todo = this.#parseLine(line, hint);
      if (todo === undefined) continue;
      this.#count++;
      this.#greatestId = todo.id;
      yield todo;
    }
  }

  /** The to-do in a line; `undefined` for the header and for a blank line. */
  #parseLine(line: string | undefined, hint: string): Todo | undefined {
    if (line === undefined) throw this.#wrong("is not UTF-8");
    if (isTooLong(line)) throw this.#wrong(tooLong());
    if (/^[ \t\r]*$/.test(line)) return undefined;
    const value = this.#parseJson(line, hint);
    if (value.todoService !== undefined && this.#header === undefined && this.#count === 0) {
      this.#header = this.#parseHeader(value);
      return undefined;
    }
    return this.#parseTodo(value);
  }

  #parseJson(line: string, hint: string): Json {
    if (line.startsWith("\uFEFF")) throw this.#wrong("starts with a byte order mark");
    let value: unknown;
    try {
      value = JSON.parse(line, exactly);
    } catch {
      throw this.#wrong(`is not JSON${hint}`);
    }
    if (isObject(value)) return value;
    throw this.#wrong("is no object with id, title and done");
  }

  #parseHeader({ todoService, lastId, todos, ...others }: Json): Header {
    if (typeof todoService !== "bigint") throw this.#wrong("todoService must be a whole number");
    if (todoService !== BigInt(FORMAT))
      throw this.#wrong(`has the format ${todoService}, which is not known`);
    if (typeof lastId !== "string" || !/^\d{1,20}$/.test(lastId) || BigInt(lastId) > this.#maxId) {
      throw this.#wrong(`lastId must be a string of digits, at most "${this.#maxId}"`);
    }
    if (typeof todos !== "bigint") throw this.#wrong("todos must be a whole number");
    this.#refuseOthers(others);
    return { lastId: BigInt(lastId), todos: Number(todos) };
  }

  #parseTodo(value: Json): Todo {
    const { id, title: _title, done: _done, ...others } = value;
    this.#refuseOthers(others);
    const { title } = this.#saying(() => parseNewTodo(value));
    const { done } = this.#saying(() => parsePatch(value));
    if (typeof id !== "bigint" || id < 1n || id > this.#maxId) {
      throw this.#wrong(`id must be a whole number from 1 to ${this.#maxId}`);
    }
    if (id <= this.#greatestId)
      throw this.#wrong(`id ${id} comes after ${this.#greatestId}: ids must ascend`);
    if (this.#header !== undefined && id > this.#header.lastId) {
      throw this.#wrong(`id ${id} is past the lastId of the header, ${this.#header.lastId}`);
    }
    return { id, title, done };
  }

  #refuseOthers(others: Json): void {
    for (const name in others) throw this.#wrong(`has ${JSON.stringify(name)}, which would be lost`);
  }

  #saying<T>(parse: () => T): T {
    try {
      return parse();
    } catch (error) {
      if (!(error instanceof Failure)) throw error;
      const messages = error.errors?.map(({ field, message }) => `${field} ${message}`);
      throw this.#wrong(messages?.join(", ") ?? error.message);
    }
  }

  #wrong(message: string, line = this.#line): Refusal {
    return new Refusal(`line ${line}: ${message}`);
  }
}

/** The text of each line; `undefined` for one that is not UTF-8. */
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

/** Whole numbers as bigints, from their digits. */
function exactly(_name: string, value: unknown, context?: { source?: string }): unknown {
  const digits = typeof value === "number" ? context?.source : undefined;
  return digits !== undefined && /^\d+$/.test(digits) ? BigInt(digits) : value;
}

function isTooLong(line: string): boolean {
  // A UTF-16 unit becomes at most three bytes of UTF-8.
  return line.length * 3 > MOST_LINE_BYTES && Buffer.byteLength(line) > MOST_LINE_BYTES;
}

const tooLong = (): string => `is longer than ${MOST_LINE_BYTES} bytes`;
