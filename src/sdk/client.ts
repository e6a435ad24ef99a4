/**
 * A typed client of the service. It uses web standards only, so it runs in Bun, in Node 20 and later, and in browsers.
 * Every call is retried when its response is lost, and retries never create a second to-do.
 *
 * @module
 */
import { isDuplicate, parseEvent, readMessages } from "./event-stream.ts";
import {
  basicAuthorization,
  type Call,
  type Exchange,
  interpret,
  isEventStream,
  isOfType,
  openExchange,
  readDeletion,
  readText,
  segmentOf,
  throwIfProblem,
} from "./exchange.ts";
import { parseJson, todoOf } from "./json.ts";
import { createKeysApi } from "./keys.ts";
import { delay, isTransient, RETRY_MAX_MS, retryDelay } from "./retry.ts";
import {
  type CallOptions,
  type KeysApi,
  type ListQuery,
  type Todo,
  TodoApiError,
  type TodoApiOptions,
  type TodoEvent,
  type TodoId,
  type TodoList,
  type TodosQuery,
} from "./types.ts";

export { compareIds } from "./json.ts";
export * from "./types.ts";

/** A stream that lasted this long was healthy: the next reconnect starts with the shortest delay. */
const STABLE_MS = 5_000;
const MAX_PAGE_SIZE = 1000;

/**
 * The service as an object. Every call is retried, with growing delays and as `Retry-After` asks, when its response was
 * lost or has a status such as 503. Retries are safe: GET, PATCH and DELETE are idempotent here, and a POST of a to-do
 * has an Idempotency-Key. Only `keys.create()` and `keys.rotate()` are sent once.
 *
 * @example
 * ```ts
 * import { TodoApi } from "todo-service/client";
 *
 * const api = new TodoApi({ baseUrl: "http://127.0.0.1:3000" });
 * const todo = await api.create("buy milk");
 * await api.setDone(todo.id, true);
 * ```
 */
export class TodoApi {
  readonly #baseUrl: string;
  readonly #bearer: string | undefined;
  readonly #basic: string | undefined;
  readonly #fetch: NonNullable<TodoApiOptions["fetch"]>;
  readonly #timeoutMs: number;
  readonly #retries: number;
  /** Lists, creates, rotates and revokes API keys. It needs the option `admin`. */
  readonly keys: KeysApi = createKeysApi((call, options, read) => this.#request(call, options, read));

  /** Throws a TypeError if `baseUrl` is not a URL, or if the name of the admin contains a colon. */
  constructor({
    baseUrl = defaultBaseUrl(),
    token,
    admin,
    fetch,
    timeoutMs = 10_000,
    retries = 4,
  }: TodoApiOptions = {}) {
    if (!URL.canParse(baseUrl, location?.href)) throw new TypeError(`baseUrl: "${baseUrl}" is not a URL`);
    this.#baseUrl = baseUrl.replace(/\/+$/, "");
    this.#bearer = token === undefined ? undefined : `Bearer ${token}`;
    this.#basic = admin && basicAuthorization(admin);
    // A browser's own fetch must not be called as a method of another object.
    this.#fetch = fetch ?? ((url, init) => globalThis.fetch(url, init));
    this.#timeoutMs = timeoutMs;
    this.#retries = retries;
  }

  /** Returns the to-dos. Without a `limit`, the list is one consistent snapshot of all of them. */
  async list(query: ListQuery = {}, options: CallOptions = {}): Promise<TodoList> {
    const search = new URLSearchParams();
    for (const [name, value] of Object.entries(query))
      if (value !== undefined) search.set(name, String(value));
    const path = `/api/todos?${search}`.replace(/\?$/, "");
    return this.#request({ method: "GET", path }, options, ({ headers }, text) => {
      const todos: unknown = parseJson(text);
      const position = /"(.+)"/.exec(headers.get("etag") ?? "")?.[1];
      const next = /[?&]after=(\d+)[^>]*>; *rel="?next/.exec(headers.get("link") ?? "")?.[1];
      if (!Array.isArray(todos) || position === undefined) throw new SyntaxError("not a list");
      return {
        todos: todos.map(todoOf),
        position,
        ...(next !== undefined && { next: next }),
      };
    });
  }

  /**
   * Yields the to-dos page by page; `limit` is the page size, by default 1000. Each page is a later snapshot than the
   * one before. The pages together with all events since the first page's position give the current list.
   */
  async *pages(query: ListQuery = {}, options: CallOptions = {}): AsyncGenerator<TodoList, void, undefined> {
    let page = await this.list({ limit: MAX_PAGE_SIZE, ...query }, options);
    yield page;
    while (page.next !== undefined) {
      page = await this.list({ limit: MAX_PAGE_SIZE, ...query, after: page.next }, options);
      yield page;
    }
  }

  /**
   * Yields the to-dos one by one, in ascending order of id, and requests the next page when it is needed. No id comes
   * twice. A to-do that exists and matches the query during the whole iteration comes exactly once. One that is created,
   * changed or deleted meanwhile comes as it is in the snapshot of its page, or is missing there. Each page is a later snapshot.
   *
   * @example
   * ```ts
   * import { TodoApi } from "todo-service/client";
   *
   * const api = new TodoApi();
   * for await (const todo of api.todos({ done: false })) console.log(todo.id, todo.title);
   * ```
   */
  async *todos(
    { pageSize = MAX_PAGE_SIZE, ...query }: TodosQuery = {},
    options: CallOptions = {},
  ): AsyncGenerator<Todo, void, undefined> {
    for await (const { todos } of this.pages({ ...query, limit: pageSize }, options)) yield* todos;
  }

  /** Returns one to-do. Rejects with `todo_not_found` if it does not exist. */
  async get(id: TodoId | bigint, options: CallOptions = {}): Promise<Todo> {
    return this.#request({ method: "GET", path: todoPath(id) }, options, this.#readTodo);
  }

  /**
   * Creates a to-do, exactly once, however often the request is sent. With an idempotency key of your own (1 to 255
   * visible ASCII characters, a new one for each to-do) that also holds across calls and processes, for 24 hours.
   */
  async create(
    title: string,
    options: CallOptions & { readonly idempotencyKey?: string } = {},
  ): Promise<Todo> {
    const { idempotencyKey = randomKey() } = options;
    const call: Call = { method: "POST", path: "/api/todos", body: { title }, idempotencyKey };
    return this.#request(call, options, this.#readTodo);
  }

  /** Sets the state of a to-do and returns it. Rejects with `todo_not_found` if it does not exist. */
  async setDone(id: TodoId | bigint, done: boolean, options: CallOptions = {}): Promise<Todo> {
    return this.#request({ method: "PATCH", path: todoPath(id), body: { done } }, options, this.#readTodo);
  }

  /**
   * Deletes a to-do. Rejects with `todo_not_found` if it does not exist. A 404 to a retry counts as success, because an
   * earlier attempt may have deleted the to-do. Chromium repeats a request on a broken connection by itself; its
   * caller sees only the second response.
   */
  async delete(id: TodoId | bigint, options: CallOptions = {}): Promise<void> {
    return this.#request({ method: "DELETE", path: todoPath(id) }, options, readDeletion);
  }

  /** Returns the name of the client that the token belongs to. Rejects with `unauthorized` if the token is unknown. */
  async whoami(options: CallOptions = {}): Promise<string> {
    return this.#request({ method: "GET", path: "/api/whoami" }, options, (response, text) => {
      if (!isOfType(response, "text/plain")) throw new SyntaxError("not a name");
      return text;
    });
  }

  /**
   * Yields every change after a position, or from now on: in order, each once, until the signal aborts. It reconnects
   * after a lost connection and continues where it was. Rejects only when the service rejects the request (a 4xx).
   *
   * To keep a list up to date: get it, read the events since its position, and get it again on `resync`.
   *
   * @example
   * ```ts
   * import { TodoApi } from "todo-service/client";
   *
   * const api = new TodoApi();
   * const { position } = await api.list();
   * for await (const event of api.events({ since: position })) console.log(event.type);
   * ```
   */
  async *events(
    options: CallOptions & { readonly since?: string } = {},
  ): AsyncGenerator<TodoEvent, void, undefined> {
    const { since, signal } = options;
    let position = since;
    let isDisconnected = false;
    let attempt = 0;
    while (!signal?.aborted) {
      const startedAt = Date.now();
      let error: TodoApiError | undefined;
      try {
        const search = position === undefined ? "" : `?since=${encodeURIComponent(position)}`;
        const call: Call = { method: "GET", path: `/api/events${search}`, accept: "text/event-stream" };
        const exchange = await this.#send(call, options);
        try {
          await throwIfProblem(exchange);
          interpret(exchange.response, () => {
            if (!isEventStream(exchange.response)) throw new SyntaxError("not an event stream");
          });
          if (position !== undefined) {
            isDisconnected = false;
            yield { type: "connected", position };
          }
          for await (const message of readMessages(exchange)) {
            const event = interpret(exchange.response, () => parseEvent(message));
            if (event === undefined || isDuplicate(event, position)) continue;
            position = event.position;
            attempt = 0;
            if (event.type === "connected") isDisconnected = false;
            yield event;
          }
        } finally {
          exchange.close();
        }
      } catch (caught) {
        if (signal?.aborted) return;
        if (!isTransient(caught)) throw caught;
        error = caught;
      }
      if (!isDisconnected) yield { type: "disconnected", ...(error !== undefined && { error }) };
      isDisconnected = true;
      if (Date.now() - startedAt > STABLE_MS) attempt = 0;
      await delay(retryDelay(attempt++, error), signal);
    }
  }

  /** Sends a request, with retries, and returns what `read` makes of the response. */
  async #request<T>(
    call: Call,
    options: CallOptions,
    read: (response: Response, text: string) => T,
  ): Promise<T> {
    // Without an Idempotency-Key, the service would execute a repeated POST twice.
    const retries = call.method === "POST" && call.idempotencyKey === undefined ? 0 : this.#retries;
    for (let attempt = 0; ; attempt++) {
      try {
        const exchange = await this.#send(call, options);
        try {
          await throwIfProblem(exchange);
          const text = await readText(exchange);
          return interpret(exchange.response, () => read(exchange.response, text));
        } catch (error) {
          // An earlier attempt may have deleted it.
          const isDeleted =
            call.method === "DELETE" &&
            attempt > 0 &&
            error instanceof TodoApiError &&
            (error.code === "todo_not_found" || error.code === "key_not_found");
          if (isDeleted) return read(exchange.response, "");
          throw error;
        } finally {
          exchange.close();
        }
      } catch (error) {
        if (attempt >= retries || !isTransient(error)) throw error;
        const ms = retryDelay(attempt, error);
        if (ms > RETRY_MAX_MS) throw error;
        await delay(ms, options.signal);
      }
    }
  }

  readonly #readTodo = (_response: Response, text: string): Todo => todoOf(parseJson(text));

  #send(call: Call, { headers, signal }: CallOptions): Promise<Exchange> {
    return openExchange({
      call,
      url: this.#baseUrl + call.path,
      authorization: call.path.startsWith("/admin/") ? this.#basic : this.#bearer,
      headers,
      signal,
      timeoutMs: this.#timeoutMs,
      fetch: this.#fetch,
    });
  }
}

const { location } = globalThis as { location?: { origin?: string; href?: string } };

/** Returns the page's own origin, or the default address of `npm start`. */
const defaultBaseUrl = (): string =>
  location?.origin?.startsWith("http") ? location.origin : "http://127.0.0.1:3000";

/** Returns 128 random bits. Pages over plain HTTP do not have `crypto.randomUUID`. */
function randomKey(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Returns a to-do's path. A string from elsewhere could contain a slash. */
const todoPath = (id: TodoId | bigint): string => `/api/todos/${segmentOf(id, "invalid_id")}`;
