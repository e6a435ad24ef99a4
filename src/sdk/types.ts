import type { ErrorCode, FieldError } from "../error.ts";
import type { Todo, TodoId } from "./todo.ts";

export type { ErrorCode, FieldError, Todo, TodoId };

export interface ListQuery {
  /** Only to-dos in this state. */
  readonly done?: boolean;
  /** Only to-dos with a greater id. */
  readonly after?: TodoId | bigint | undefined;
  /** The maximum number of to-dos, 1 to 1000. Without it, the list is complete. */
  readonly limit?: number;
}

export interface TodosQuery extends Omit<ListQuery, "limit"> {
  /** The number of to-dos per request, 1 to 1000. Default: 1000. */
  readonly pageSize?: number;
}

/** One consistent snapshot of the to-dos, by ascending id. */
export interface TodoList {
  readonly todos: Todo[];
  /** The position of the snapshot. Pass it to `events({ since })` to miss no later change. */
  readonly position: string;
  /** Where the next page starts (`after`). Absent on the last page. */
  readonly next?: TodoId;
}

/** An event from `TodoApi.events()`: a change to a to-do, or a change of the connection. */
export type TodoEvent =
  | { readonly type: "created" | "updated"; readonly position: string; readonly todo: Todo }
  | { readonly type: "deleted"; readonly position: string; readonly id: TodoId }
  /** The server no longer has the missed changes: get the list again. Later events follow `position`. */
  | { readonly type: "resync"; readonly position: string }
  /** The connection delivers, for the first time or again. Later events follow `position`; the missed ones come first. */
  | { readonly type: "connected"; readonly position: string }
  /** The connection is lost and the client reconnects. */
  | { readonly type: "disconnected"; readonly error: TodoApiError };

/** A state of the list, from `TodoApi.follow()`. */
export interface LiveList {
  /**
   * All to-dos by ascending id; empty until the list has loaded. The array is yours. It is the same as in the state
   * before if no to-do has changed, and a to-do that has not changed is the same object. A to-do whose creation has no
   * answer yet is at the end, with an id of more than 20 digits.
   */
  readonly todos: Todo[];
  /** The position of the list in the event stream. Absent until the list has loaded. */
  readonly position?: string | undefined;
  /**
   * Whether changes arrive now. `disconnected`: the to-dos may be outdated, and the client reconnects. `signed-out`: the
   * service wants credentials, because the session has ended or there was none; the list is empty, and continues after
   * `signIn()`. `failed`: the service rejected the request. An iterator throws the error of the last two instead.
   */
  readonly status: "connecting" | "connected" | "disconnected" | "signed-out" | "failed";
  /** Why the status is `disconnected`, `signed-out` or `failed`. An error without a `code` is no answer of the service. */
  readonly error?: TodoApiError | (Error & { readonly code?: undefined }) | undefined;
}

/**
 * The list, as it changes. An iteration yields the latest state, and then each new one, until its loop ends or the signal
 * aborts. It throws the error of a rejected request. Iterations and subscribers share one event stream, which is open
 * while there is one of them.
 *
 * Writes are sent one after another, in the order of the calls. The next state shows their effect. It disappears again
 * if the call rejects.
 */
export interface FollowedList {
  /** Yields each state. A slow loop gets only the latest one. */
  [Symbol.asyncIterator](): AsyncGenerator<LiveList, void, undefined>;
  /** Passes each new state to a function. Returns a function that ends this. */
  readonly subscribe: (onState: (state: LiveList) => void) => () => void;
  /** Returns the latest state. It is the same object until something changes. */
  readonly getState: () => LiveList;
  /** Creates a to-do. Resolves to it when the service has stored it. */
  readonly create: (title: string, options?: CreateOptions) => Promise<Todo>;
  /** Sets the state of a to-do. Rejects with `todo_not_found` if it does not exist. */
  readonly setDone: (id: TodoId | bigint, done: boolean, options?: CallOptions) => Promise<Todo>;
  /** Deletes a to-do. Rejects with `todo_not_found` if it does not exist. */
  readonly delete: (id: TodoId | bigint, options?: CallOptions) => Promise<void>;
}

export interface FollowOptions extends CallOptions {
  /** A complete list to start from, for example one that was loaded before. It is shown until changes arrive. */
  readonly from?: TodoList;
}

type TodoApiErrorOptions = ErrorOptions &
  Partial<Pick<TodoApiError, "status" | "detail" | "fields" | "retryAfter" | "requestId" | "position">>;

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
 *   await api.delete("1");
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
  declare readonly code: ErrorCode | "network_error" | "timeout" | "unexpected_answer";
  /** The HTTP status, if there was a response. */
  declare readonly status: number | undefined;
  /** What is wrong with this request, in the service's words. */
  declare readonly detail: string | undefined;
  /** With `validation_failed`, every violated rule; otherwise empty. */
  declare readonly fields: readonly FieldError[];
  /** Seconds to wait before the next attempt, from `Retry-After`. */
  declare readonly retryAfter: number | undefined;
  /** The `X-Request-Id` of the response. The service sends it if it runs with `--access-log`. */
  declare readonly requestId: string | undefined;
  /** With `todo_not_found` for a write: a list at this position or a later one does not have the to-do. */
  declare readonly position: string | undefined;

  constructor(code: TodoApiError["code"], message: string, { cause, ...rest }: TodoApiErrorOptions = {}) {
    super(message, { cause });
    Object.assign(this, { code, fields: [] }, rest);
  }
}

export interface TodoApiOptions {
  /**
   * The address of the service, including a path prefix if it has one. Default: the page's own origin in a browser,
   * `http://127.0.0.1:3000` elsewhere.
   */
  readonly baseUrl?: string;
  /**
   * A bearer token, sent as `Authorization: Bearer`, or a function that returns it. The function is called before each
   * attempt of a call; if it throws, the call rejects with its error.
   */
  readonly token?: string | (() => string | undefined | Promise<string | undefined>);
  /** The user for `keys`, sent with HTTP Basic. Without it, a browser sends the credentials that its user entered. */
  readonly admin?: AdminCredentials;
  /** Sends the requests, for example with more headers or through a proxy. Default: the global `fetch`. */
  readonly fetch?: ((url: string, init: RequestInit) => Promise<Response>) | undefined;
  /** Milliseconds without data from the service after which an attempt is aborted. Default: 10,000. */
  readonly timeoutMs?: number;
  /** The maximum number of retries per request. Default: 4, over about three seconds. */
  readonly retries?: number;
}

export interface CallOptions {
  /** Aborts the call. A request that was already sent may still take effect. */
  readonly signal?: AbortSignal | undefined;
  /**
   * Headers of this call, such as `traceparent`. An `Authorization` replaces the client's own. `Content-Type`,
   * `Idempotency-Key` and the `Accept` of `events()` are always the client's own.
   */
  readonly headers?: Readonly<Record<string, string>> | undefined;
  /** Replaces the option `timeoutMs` of the client. */
  readonly timeoutMs?: number | undefined;
  /** Replaces the option `retries` of the client. Events and live lists reconnect without a limit. */
  readonly retries?: number | undefined;
}

export interface CreateOptions extends CallOptions {
  /** 1 to 255 visible ASCII characters, a new one for each to-do. Default: a random one. */
  readonly idempotencyKey?: string;
}

/** What a browser signs in with: a user and a password, the token of an API key, or a link with a code. */
export type Credentials =
  | { readonly user: string; readonly password: string }
  | { readonly token: string }
  | { readonly link: string };

/** A user of the service who may manage API keys. */
export interface AdminCredentials {
  /** The user name. It must not contain a colon. */
  readonly name: string;
  readonly password: string;
}

/** An API key without its token. Times are in UTC, such as `2026-01-02T03:04:05Z`. */
export interface ApiKey {
  /** Eight letters and digits. The id is not secret. */
  readonly id: string;
  /** The name of the client, which `whoami()` returns. */
  readonly name: string;
  /** What the client may do in private mode. */
  readonly scope: "read" | "write";
  readonly createdAt: string;
  /** Absent if the key does not expire. */
  readonly expiresAt?: string;
  /** The last use, accurate to a few minutes. Absent if the key was never used. */
  readonly lastUsedAt?: string;
  /** The user or the client whose browser signed in with this key. Absent for the key of a program. */
  readonly deviceOf?: string;
  /** The id of the key with which that browser signed in. Absent if a user signed in with a password. */
  readonly parentId?: string;
}

/** A new API key with its token. The service does not store the token and never shows it again. */
export interface MintedApiKey extends ApiKey {
  readonly token: string;
}

/** A link that signs in one browser within ten minutes. */
export interface SignInLink {
  readonly link: string;
  /** A QR code of the link: its width and height in modules, and the dark modules as a path of SVG. */
  readonly qrCode: { readonly size: number; readonly path: string };
  readonly expiresAt: string;
}

/**
 * The API keys of the service. `create()` and `rotate()` are never retried, because the service would create another
 * key. If their response is lost, look for the new key with `list()` and revoke it.
 *
 * @example
 * ```ts
 * import { TodoApi } from "todo-service/client";
 *
 * const api = new TodoApi({ admin: { name: "admin", password: "correct horse" } });
 * const { id, token } = await api.keys.create("ci", { expires: "90d" });
 * console.log(await new TodoApi({ token }).whoami());
 * await api.keys.revoke(id);
 * ```
 */
export interface KeysApi {
  /** Returns all keys by time of creation. Expired keys stay in the list for about 30 days. */
  list(options?: CallOptions): Promise<readonly ApiKey[]>;
  /** Creates a key. Rejects with `key_exists` if a valid key has this name. */
  create(
    name: string,
    options?: CallOptions & {
      /** How long the key is valid, such as `90d` or `12h`. Without it, the key does not expire. */
      readonly expires?: string;
      /** Default: `"write"`. */
      readonly scope?: ApiKey["scope"];
    },
  ): Promise<MintedApiKey>;
  /** Creates a successor with the same name and lifetime. Rejects with `key_not_found` if the key does not exist. */
  rotate(
    id: string,
    options?: CallOptions & {
      /** How long the existing keys of that name stay valid, such as `1h` or `0`. Default: 24 hours. */
      readonly overlap?: string;
    },
  ): Promise<MintedApiKey>;
  /**
   * Renames a key, whose token stays valid. The name of a browser still begins with its owner. Rejects with `key_exists` if
   * another key has the name, or another browser of the owner.
   */
  rename(id: string, name: string, options?: CallOptions): Promise<ApiKey>;
  /** Creates a link that signs in one browser as the client, in private mode. Rejects with `key_not_found` if no valid key has the id. */
  createLink(id: string, options?: CallOptions): Promise<SignInLink>;
  /** Deletes a key; its token is invalid immediately. Rejects with `key_not_found` if the key does not exist. */
  revoke(id: string, options?: CallOptions): Promise<void>;
}
