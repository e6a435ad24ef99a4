import { brokenTextRules, invalid, member } from "./field.ts";

/** An unsigned 64-bit integer, from 1. A bigint, because a JSON number loses digits past 2^53. */
export type TodoId = bigint;

export const MAX_TODO_ID: TodoId = 2n ** 64n - 1n;
export const MAX_TITLE_LENGTH = 120;

export interface Todo {
  readonly id: TodoId;
  readonly title: string;
  readonly done: boolean;
}

export interface NewTodo {
  readonly title: string;
}

export interface Patch {
  readonly done: boolean;
}

/** A to-do as it is sent: the JSON object `{"id":…,"title":…,"done":…}`, as text or as its UTF-8 bytes. */
export type TodoJson = string | Uint8Array<ArrayBuffer>;

/** A value that is here already, or will be: what is in memory need not wait for the event loop. */
export type Awaitable<T> = T | Promise<T>;

/**
 * How far a store has come: `n` moves by one with every change. Positions of different epochs cannot be
 * compared; a store that forgets its past, as memory does at each start, takes a new random epoch.
 */
export interface Position {
  readonly epoch: string;
  readonly n: number;
}

/** A position as text, `<epoch>-<n>`: the list's ETag and an event's id. */
export const formatPosition = ({ epoch, n }: Position): string => `${epoch}-${n}`;

export interface ListQuery {
  /** Only to-dos with a greater id. */
  readonly after?: TodoId;
  /** At most so many, 1 to 1000; without it, all of them. */
  readonly limit?: number;
  /** Only to-dos in this state. */
  readonly done?: boolean;
}

/** One consistent snapshot of the to-dos asked for, by ascending id. */
export interface TodoList {
  /** The position that the list shows. */
  readonly position: Position;
  /** The JSON array: at once when it is short, in pieces when it is long. The pieces never change. */
  readonly json: TodoJson | Iterable<Uint8Array<ArrayBuffer>> | AsyncIterable<Uint8Array<ArrayBuffer>>;
  /** Where the next page starts (`after`); absent on the last page. */
  readonly next?: TodoId;
}

export type TodoEvent = { readonly position: Position; readonly id: TodoId } & (
  | { readonly type: "created" | "updated"; readonly json: TodoJson }
  | { readonly type: "deleted" }
);

/**
 * What every storage engine gives. Each call is atomic; "absent" is `undefined`. A call that cannot be
 * answered throws a Failure: `store_unavailable`, or `store_full` from `insert`, and then changes nothing; what
 * `store_unavailable` refused may turn out to be there later, on disk or in a database that answered too late.
 */
export interface TodoStore {
  /**
   * Stores a to-do that is not done, under the next id. Ids start at 1, leave no gap, are never used again.
   * Within 24 hours, the same idempotency key and title give the same answer and change nothing; the key
   * with another title throws `idempotency_key_reused`.
   */
  insert(title: string, idempotencyKey?: string): Awaitable<{ readonly id: TodoId; readonly json: TodoJson }>;
  get(id: TodoId): Awaitable<TodoJson | undefined>;
  list(query: ListQuery): Awaitable<TodoList>;
  /** Sets `done`; setting what is so already changes nothing and moves no position. */
  setDone(id: TodoId, done: boolean): Awaitable<TodoJson | undefined>;
  /** Whether there was one to delete. */
  delete(id: TodoId): Awaitable<boolean>;
  position(): Awaitable<Position>;
  /**
   * Every change after `after`, in order, each once: first those kept, then those to come, until `signal`
   * aborts. Ends at once when the changes after that position are unknown or no longer kept, and ends when
   * the reader has fallen too far behind: the reader then starts again from a list.
   */
  events(after: Position, signal: AbortSignal): AsyncIterable<TodoEvent>;
  close(): Awaitable<void>;
}

const DIGITS = /^[0-9]+$/;

/** Reads an id: ASCII digits, leading zeros allowed, at most 2^64−1. Anything else is `undefined`. */
export function parseTodoId(text: string): TodoId | undefined {
  if (!DIGITS.test(text)) return undefined;
  const id = BigInt(text);
  return id <= MAX_TODO_ID ? id : undefined;
}

/** Checks the body of a create: throws `validation_failed` with every broken rule; unknown members are ignored. */
export function parseNewTodo(body: unknown): NewTodo {
  const title = member(body, "title");
  if (title === undefined) throw invalid("title", "is required");
  if (typeof title !== "string") throw invalid("title", "must be a string");
  const messages = brokenTextRules(title, MAX_TITLE_LENGTH);
  if (messages.length > 0) throw invalid("title", ...messages);
  return { title };
}

/** Checks the body of an update, as parseNewTodo does. Nothing is coerced: `"true"` and 1 are no booleans. */
export function parsePatch(body: unknown): Patch {
  const done = member(body, "done");
  if (done === undefined) throw invalid("done", "is required");
  if (typeof done !== "boolean") throw invalid("done", "must be a boolean");
  return { done };
}

export function encodeTodo({ id, title, done }: Todo): string {
  return `{"id":${id},"title":${JSON.stringify(title)},"done":${done}}`;
}

/** An encoded to-do with another `done`. */
export function withDone(json: string, done: boolean): string {
  return `${json.slice(0, json.lastIndexOf(":") + 1)}${done}}`;
}
