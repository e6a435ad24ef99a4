import type { ErrorCode } from "../error-code.ts";

export type { ErrorCode };

/** An unsigned 64-bit integer, starting at 1. A bigint, because a number loses digits above 2^53. */
export type TodoId = bigint;

/** How the client represents ids: `"bigint"`, or `"string"` for JSON, caches and state that cannot hold a bigint. */
export type IdFormat = "bigint" | "string";

/** The type of ids in a format. */
export type IdOf<Format extends IdFormat> = Format extends "string" ? string : TodoId;

/** An id in either format. */
export type AnyId = IdOf<IdFormat>;

export interface Todo<Id extends AnyId = TodoId> {
  readonly id: Id;
  readonly title: string;
  readonly done: boolean;
}

export interface ListQuery {
  /** Only to-dos in this state. */
  readonly done?: boolean;
  /** Only to-dos with a greater id. */
  readonly after?: AnyId;
  /** The maximum number of to-dos, 1 to 1000. Without it, the list is complete. */
  readonly limit?: number;
}

/** One consistent snapshot of the to-dos, by ascending id. */
export interface TodoList<Id extends AnyId = TodoId> {
  readonly todos: readonly Todo<Id>[];
  /** The position of the snapshot. Pass it to `events({ since })` to miss no later change. */
  readonly position: string;
  /** Where the next page starts (`after`). Absent on the last page. */
  readonly next?: Id;
}

/** An event from `TodoApi.events()`: a change to a to-do, or a change of the connection. */
export type TodoEvent<Id extends AnyId = TodoId> =
  | { readonly type: "created" | "updated"; readonly position: string; readonly todo: Todo<Id> }
  | { readonly type: "deleted"; readonly position: string; readonly id: Id }
  /** The server no longer has the missed changes: get the list again. Later events follow `position`. */
  | { readonly type: "resync"; readonly position: string }
  /** The connection is open, for the first time or again. Later events follow `position`. */
  | { readonly type: "connected"; readonly position: string }
  /** The connection is lost and the client reconnects. Without an error, the server closed the stream. */
  | { readonly type: "disconnected"; readonly error?: TodoApiError };

/** One violated rule of one field. */
export interface FieldError {
  readonly field: string;
  readonly message: string;
}

interface TodoApiErrorOptions {
  readonly status?: number | undefined;
  readonly detail?: string | undefined;
  readonly fields?: readonly FieldError[] | undefined;
  readonly retryAfter?: number | undefined;
  readonly cause?: unknown;
}

/**
 * The error of every call that fails. Two cases are different: an aborted call rejects with the signal's reason, and a
 * request that cannot be sent at all, such as a token with a line break, rejects with a TypeError.
 *
 * @example
 * ```ts
 * import { TodoApi, TodoApiError } from "todo-service/client";
 *
 * const api = new TodoApi();
 * try {
 *   await api.delete(1n);
 * } catch (error) {
 *   if (!(error instanceof TodoApiError) || error.code !== "todo_not_found") throw error;
 * }
 * ```
 */
export class TodoApiError extends Error {
  override readonly name = "TodoApiError";
  /**
   * The service's error code, or one of the client's own: `network_error` (no response, or an incomplete one),
   * `timeout`, or `unexpected_answer` (a response that is not from this service, such as a proxy's error page).
   */
  readonly code: ErrorCode | "network_error" | "timeout" | "unexpected_answer";
  /** The HTTP status, if there was a response. */
  readonly status: number | undefined;
  /** What is wrong with this request, in the service's words. */
  readonly detail: string | undefined;
  /** With `validation_failed`, every violated rule; otherwise empty. */
  readonly fields: readonly FieldError[];
  /** Seconds to wait before the next attempt, from `Retry-After`. */
  readonly retryAfter: number | undefined;

  constructor(code: TodoApiError["code"], message: string, options: TodoApiErrorOptions = {}) {
    super(message, { cause: options.cause });
    this.code = code;
    this.status = options.status;
    this.detail = options.detail;
    this.fields = options.fields ?? [];
    this.retryAfter = options.retryAfter;
  }
}

export interface TodoApiOptions<Format extends IdFormat = "bigint"> {
  /** The type of the ids that the client returns. Every call accepts both types. Default: `"bigint"`. */
  readonly ids?: Format;
  /**
   * The address of the service, including a path prefix if it has one. Default: the page's own origin in a browser,
   * `http://127.0.0.1:3000` elsewhere.
   */
  readonly baseUrl?: string;
  /** A bearer token, sent as `Authorization: Bearer`. */
  readonly token?: string;
  /** Sends the requests. Default: the global `fetch`. */
  readonly fetch?: (url: string, init: RequestInit) => Promise<Response>;
  /** Milliseconds without data from the service after which an attempt is aborted. Default: 10,000. */
  readonly timeoutMs?: number;
  /** The maximum number of retries per request. Default: 4, over about three seconds. */
  readonly retries?: number;
}

export interface CallOptions {
  /** Aborts the call. A request that was already sent may still take effect. */
  readonly signal?: AbortSignal | undefined;
}
