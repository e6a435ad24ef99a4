import { type Call, isOfType, readDeletion, toSegment } from "./exchange.ts";
import { parseJson, parseTodo } from "./json.ts";
import { createTransport, type Transport } from "./transport.ts";
import type { CallOptions, ListQuery, Todo, TodoApiOptions, TodoId, TodoList } from "./types.ts";

/**
 * The calls of `TodoApi` that send one request and return one result. A bundle that uses only this class does not contain
 * iteration, events, live lists and API keys.
 *
 * @example
 * ```ts
 * import { TodoApiCore } from "todo-service/client";
 *
 * const { todos } = await new TodoApiCore({ baseUrl: "http://127.0.0.1:3000" }).list();
 * console.log(todos.length);
 * ```
 */
export class TodoApiCore {
  protected readonly transport: Transport;

  /** Throws a TypeError if `baseUrl` is not an HTTP URL, or if the name of the admin contains a colon. */
  constructor(options: TodoApiOptions = {}) {
    this.transport = createTransport(options);
  }

  /** Returns the to-dos. Without a `limit`, the list is one consistent snapshot of all of them. */
  async list(query: ListQuery = {}, options: CallOptions = {}): Promise<TodoList> {
    const search = new URLSearchParams();
    for (const [name, value] of Object.entries(query))
      if (value !== undefined) search.set(name, String(value));
    const path = `/api/todos?${search}`.replace(/\?$/, "");
    return this.transport.request({ method: "GET", path }, options, ({ headers }, text) => {
      const todos: unknown = parseJson(text);
      // Some proxies append the content coding to the ETag of a response that they compress.
      const position = /"(.+?-\d+)(?:-(?:gzip|br|zstd))?"/.exec(headers.get("etag") ?? "")?.[1];
      const next = /[?&]after=(\d+)[^>]*>; *rel="?next/.exec(headers.get("link") ?? "")?.[1];
      if (!Array.isArray(todos) || position === undefined) throw new SyntaxError("not a list");
      return {
        todos: todos.map(parseTodo),
        position,
        ...(next !== undefined && { next }),
      };
    });
  }

  /** Returns one to-do. Rejects with `todo_not_found` if it does not exist. */
  async get(id: TodoId | bigint, options: CallOptions = {}): Promise<Todo> {
    return this.transport.request({ method: "GET", path: todoPath(id) }, options, readTodo);
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
    return this.transport.request(call, options, readTodo);
  }

  /** Sets the state of a to-do and returns it. Rejects with `todo_not_found` if it does not exist. */
  async setDone(id: TodoId | bigint, done: boolean, options: CallOptions = {}): Promise<Todo> {
    const call: Call = { method: "PATCH", path: todoPath(id), body: { done } };
    return this.transport.request(call, options, readTodo);
  }

  /**
   * Deletes a to-do. Rejects with `todo_not_found` if it does not exist. A 404 to a retry counts as success, because an
   * earlier attempt may have deleted the to-do. Chromium repeats a request on a broken connection by itself; its
   * caller sees only the second response.
   */
  async delete(id: TodoId | bigint, options: CallOptions = {}): Promise<void> {
    return this.transport.request({ method: "DELETE", path: todoPath(id) }, options, readDeletion);
  }

  /** Returns the name of the client that the token belongs to. Rejects with `unauthorized` if the token is unknown. */
  async whoami(options: CallOptions = {}): Promise<string> {
    return this.transport.request({ method: "GET", path: "/api/whoami" }, options, (response, text) => {
      if (!isOfType(response, "text/plain")) throw new SyntaxError("not a name");
      return text;
    });
  }
}

const readTodo = (_response: Response, text: string): Todo => parseTodo(parseJson(text));

/** Returns 128 random bits. Pages over plain HTTP do not have `crypto.randomUUID`, and React Native has no `crypto`. */
function randomKey(): string {
  const bytes = new Uint8Array(16).map(() => Math.random() * 256);
  globalThis.crypto?.getRandomValues(bytes);
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Returns a to-do's path. A string from elsewhere could contain a slash. */
const todoPath = (id: TodoId | bigint): string => `/api/todos/${toSegment(id, "invalid_id")}`;
