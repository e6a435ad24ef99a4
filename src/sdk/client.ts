/**
 * A typed client of the service. It uses web standards only, so it runs in Bun, in Node 22 and later, and in browsers.
 * Every call is retried when its response is lost. The service recognizes the retry of a `create()` for 24 hours.
 *
 * @module
 */
import { TodoApiCore } from "./core.ts";
import { readEvents } from "./event-stream.ts";
import { readDeletion } from "./exchange.ts";
import { followList } from "./follow.ts";
import { parseId } from "./json.ts";
import { createKeysApi } from "./keys.ts";
import type {
  CallOptions,
  Credentials,
  FollowedList,
  FollowOptions,
  KeysApi,
  ListQuery,
  Todo,
  TodoEvent,
  TodoList,
  TodosQuery,
} from "./types.ts";

export { TodoApiCore } from "./core.ts";
export { compareIds } from "./json.ts";
export * from "./types.ts";

const MAX_PAGE_SIZE = 1000;
const SESSION_PATH = "/api/session";

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
export class TodoApi extends TodoApiCore {
  /** Lists, creates, rotates and revokes API keys. It needs the option `admin`. */
  readonly keys: KeysApi = createKeysApi(this.transport.request);
  readonly #restarts = new Set<() => void>();

  /**
   * Yields the to-dos page by page; `limit` is the page size, by default 1000. Each page is a later snapshot than the
   * one before. The pages together with all events since the first page's position give the current list.
   */
  async *pages(query: ListQuery = {}, options?: CallOptions): AsyncGenerator<TodoList, void, undefined> {
    let { after } = query;
    do {
      const page = await this.list({ limit: MAX_PAGE_SIZE, ...query, after }, options);
      yield page;
      after = page.next;
    } while (after !== undefined);
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
    options?: CallOptions,
  ): AsyncGenerator<Todo, void, undefined> {
    for await (const { todos } of this.pages({ ...query, limit: pageSize }, options)) yield* todos;
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
  events(
    options: CallOptions & { readonly since?: string } = {},
  ): AsyncGenerator<TodoEvent, void, undefined> {
    return readEvents(this.transport.send, options);
  }

  /**
   * Signs this browser in to a service in private mode. The browser keeps a cookie that scripts cannot read. Followed lists
   * start again. The page must come from the origin of the service. Rejects with `unauthorized`, and with a TypeError in
   * Node, Bun and Deno, which keep no cookies.
   *
   * @example
   * ```ts
   * import { TodoApi } from "todo-service/client";
   *
   * const api = new TodoApi();
   * const signIn = (token: string) => api.signIn({ token });
   * ```
   */
  async signIn(credentials: Credentials, options?: CallOptions): Promise<void> {
    if (!this.transport.keepsCookies) throw new TypeError("signIn() needs a browser: use the option token");
    const body = "link" in credentials ? { code: credentials.link.replace(/^.*#sign-in=/, "") } : credentials;
    const call = { method: "POST", path: SESSION_PATH, body };
    await this.transport.request(call, options, (_response, text) => parseId(JSON.parse(text)));
    for (const restart of this.#restarts) restart();
  }

  /** Signs this browser out. Followed lists are empty at once. Rejects with `unauthorized` if nobody was signed in. */
  async signOut(options?: CallOptions): Promise<void> {
    await this.transport.request({ method: "DELETE", path: SESSION_PATH }, options, readDeletion);
    for (const restart of this.#restarts) restart();
  }

  /**
   * Returns the list as it changes, for iteration or with `subscribe()`, and for writes whose effect it shows at once. It
   * reads events, gets the list again when changes were missed, and reconnects. Changes that arrive together are one state.
   * It fails only when the service rejects a request (a 4xx). Throws a TypeError if the list to start from is only a page.
   *
   * @example
   * ```ts
   * import { TodoApi } from "todo-service/client";
   *
   * const list = new TodoApi().follow();
   * const stop = list.subscribe(({ todos, status }) => console.log(todos.length, status));
   * await list.create("buy milk");
   * setTimeout(stop, 60_000);
   * ```
   */
  follow(options: FollowOptions = {}): FollowedList {
    return followList(
      {
        list: (call) => this.list({}, call),
        events: (call) => this.events(call),
        writes: this.writes,
        restarts: this.#restarts,
      },
      options,
    );
  }
}
