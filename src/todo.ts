import type { Awaitable } from "./awaitable.ts";
import { ownProperty, requireText, textViolations, validationError } from "./validation.ts";

/** An unsigned 64-bit integer, starting at 1. A bigint, because a number loses digits above 2^53. */
export type TodoId = bigint;

export const MAX_TODO_ID: TodoId = 2n ** 64n - 1n;
export const MAX_TITLE_LENGTH = 120;

export interface Todo {
  readonly id: TodoId;
  readonly title: string;
  readonly done: boolean;
}

/** An encoded to-do: the JSON object `{"id":…,"title":…,"done":…}` as text or as UTF-8 bytes. */
export type TodoJson = string | Uint8Array<ArrayBuffer>;

/**
 * The position of a store: `sequence` increases by one with every change. The first change after a start begins a new
 * random epoch. So the store never gives a position that it gave before to another state, even if it lost changes.
 */
export interface Position {
  readonly epoch: string;
  readonly sequence: number;
}

/** Returns `<epoch>-<sequence>`: the list's ETag and an event's id. */
export const formatPosition = ({ epoch, sequence }: Position): string => `${epoch}-${sequence}`;

export interface ListQuery {
  /** Only to-dos with a greater id. */
  readonly after?: TodoId | undefined;
  /** The maximum number of to-dos, 1 to 1000. Default: no limit. */
  readonly limit?: number | undefined;
  /** Only to-dos in this state. */
  readonly done?: boolean | undefined;
}

/** A consistent snapshot of the requested to-dos, by ascending id. */
export interface TodoList {
  /** The position of the snapshot. */
  readonly position: Position;
  /** The JSON array: bytes or a Blob if it is short, chunks if it is long. Later writes do not change it. */
  readonly json:
    | Uint8Array<ArrayBuffer>
    | Blob
    | Iterable<Uint8Array<ArrayBuffer>>
    | AsyncIterable<Uint8Array<ArrayBuffer>>;
  /** The `after` value of the next page; absent on the last page. */
  readonly next?: TodoId;
}

export type TodoEvent = { readonly position: Position; readonly id: TodoId } & (
  | { readonly type: "created"; readonly json: string }
  | { readonly type: "updated"; readonly json: TodoJson }
  | { readonly type: "deleted" }
);

/** The answer to a write. */
export interface Written {
  /** Every list at this position or a later one contains the effect of the write. Of a change, it is the event's position. */
  readonly position: Position;
}

/**
 * A store of to-dos. Each call is atomic. A call that fails throws a ServiceError: `store_unavailable`, or `store_full`
 * from `insert`. A write that fails with `store_unavailable` may still have been stored, because the disk or the database
 * may have completed it too late.
 */
export interface TodoStore {
  /**
   * Stores a to-do that is not done, under the next id. Ids start at 1, have no gaps and are never reused.
   * For 24 hours, or until newer keys evict it, the same idempotency key and title return the same to-do and change
   * nothing. The same key with another title throws `idempotency_key_reused`.
   */
  insert(
    title: string,
    idempotencyKey?: string,
  ): Awaitable<Written & { readonly id: TodoId; readonly json: TodoJson }>;
  /** Returns a to-do; `undefined` if it is absent. */
  get(id: TodoId): Awaitable<TodoJson | undefined>;
  /** Lists to-dos. A list of more than `maxBlobBytes` bytes (default: 1 MiB) is returned in chunks. */
  list(query: ListQuery, maxBlobBytes?: number): Awaitable<TodoList>;
  /**
   * Sets `done`. Returns the resulting to-do; `undefined` if it is absent. Setting the current value changes neither the
   * to-do nor the position.
   */
  setDone(id: TodoId, done: boolean): Awaitable<Written & { readonly json: TodoJson | undefined }>;
  /** Deletes a to-do. */
  delete(id: TodoId): Awaitable<Written & { readonly existed: boolean }>;
  position(): Awaitable<Position>;
  /**
   * Throws `store_unavailable` if the last write has failed and writes still fail, so that `/readyz` fails although reads
   * succeed. A store whose writes cannot fail alone does not need it.
   */
  checkWrites?(): Awaitable<void>;
  /**
   * Yields every change after `after` once, in order and in batches: first the stored ones, then the new ones. Ends when
   * `signal` aborts or the store closes. Ends immediately if the changes after that position are unknown or no longer
   * stored. Ends if the subscriber falls too far behind; it must then start again from a list.
   */
  events(after: Position, signal: AbortSignal): AsyncIterable<readonly TodoEvent[]>;
  /** Completes earlier writes, then ends every iterator of `events`. */
  close(): Awaitable<void>;
}

/** How the calls of a store are measured. If a write fails, the store is not writable. */
export const STORE_OPERATIONS = {
  insert: "write",
  get: "read",
  list: "read",
  setDone: "write",
  delete: "write",
  position: "read",
  checkWrites: "unmeasured",
  events: "unmeasured",
  close: "unmeasured",
} as const satisfies Record<keyof TodoStore, "read" | "write" | "unmeasured">;

const DIGITS = /^[0-9]+$/;

/** Parses an id: ASCII digits, leading zeros allowed, at most 2^64−1. Returns `undefined` for any other text. */
export function parseTodoId(text: string): TodoId | undefined {
  if (!DIGITS.test(text)) return undefined;
  const id = BigInt(text);
  return id <= MAX_TODO_ID ? id : undefined;
}

/** Validates the body of a create request. Throws `validation_failed` with all errors. Ignores unknown properties. */
export function parseNewTodo(body: unknown): { readonly title: string } {
  const title = requireText(body, "title");
  const messages = textViolations(title, MAX_TITLE_LENGTH);
  if (messages.length > 0) throw validationError("title", ...messages);
  return { title };
}

/** Validates the body of an update request. Throws `validation_failed`. Coerces nothing: `"true"` is not a boolean. */
export function parsePatch(body: unknown): { readonly done: boolean } {
  const done = ownProperty(body, "done");
  if (done === undefined) throw validationError("done", "is required");
  if (typeof done !== "boolean") throw validationError("done", "must be a boolean");
  return { done };
}

export function encodeTodo({ id, title, done }: Todo): string {
  return `{"id":${id},"title":${JSON.stringify(title)},"done":${done}}`;
}

/** Returns whether an encoded to-do is done. */
export const isDone = (json: string): boolean => json.endsWith("true}");

/** Returns an encoded to-do with another value of `done`. */
export function withDone(json: string, done: boolean): string {
  return `${json.slice(0, json.lastIndexOf(":") + 1)}${done}}`;
}

const decoder = new TextDecoder();

/** Returns an encoded to-do as text. */
export const todoText = (json: TodoJson): string => (typeof json === "string" ? json : decoder.decode(json));
