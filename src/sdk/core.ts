import { isOfType, readPosition } from "./exchange.ts";
import { check, parseJson, parseTodo, readTodo } from "./json.ts";
import { createTransport, type Transport } from "./transport.ts";
import type {
  CallOptions,
  CreateOptions,
  ListQuery,
  Todo,
  TodoApiOptions,
  TodoId,
  TodoList,
} from "./types.ts";
import { createWrites, todoPath, type Writes } from "./writes.ts";

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
  protected readonly writes: Writes;

  /** Throws a TypeError if `baseUrl` is not an HTTP URL, or if the name of the admin contains a colon. */
  constructor(options: TodoApiOptions = {}) {
    this.transport = createTransport(options);
    this.writes = createWrites(this.transport.request);
  }

  /** Returns the to-dos. Without a `limit`, the list is one consistent snapshot of all of them. */
  async list(query: ListQuery = {}, options?: CallOptions): Promise<TodoList> {
    const search = new URLSearchParams();
    for (const [name, value] of Object.entries(query))
      if (value !== undefined) search.set(name, String(value));
    const path = `/api/todos?${search}`.replace(/\?$/, "");
    return this.transport.request({ method: "GET", path }, options, (response, text) => {
      const todos: unknown = parseJson(text);
      const position = readPosition(response);
      const next = /[?&]after=(\d+)[^>]*>; *rel="?next/.exec(response.headers.get("link") ?? "")?.[1];
      check(Array.isArray(todos) && position !== undefined);
      return { todos: todos.map(parseTodo), position, ...(next !== undefined && { next }) };
    });
  }

  /** Returns one to-do. Rejects with `todo_not_found` if it does not exist. */
  async get(id: TodoId | bigint, options?: CallOptions): Promise<Todo> {
    return this.transport.request({ method: "GET", path: todoPath(id) }, options, readTodo);
  }

  /**
   * Creates a to-do. However often the request is sent within 24 hours, the service creates one, unless a store in memory was
   * restarted. With an idempotency key of your own (1 to 255 visible ASCII characters) that also holds across calls and processes.
   */
  async create(title: string, options?: CreateOptions): Promise<Todo> {
    return (await this.writes.create(title, options)).result;
  }

  /** Sets the state of a to-do and returns it. Rejects with `todo_not_found` if it does not exist. */
  async setDone(id: TodoId | bigint, done: boolean, options?: CallOptions): Promise<Todo> {
    return (await this.writes.setDone(id, done, options)).result;
  }

  /**
   * Deletes a to-do. Rejects with `todo_not_found` if it does not exist. A 404 to a retry counts as success, because an
   * earlier attempt may have deleted the to-do. Chromium repeats a request on a broken connection by itself; its
   * caller sees only the second response.
   */
  async delete(id: TodoId | bigint, options?: CallOptions): Promise<void> {
    await this.writes.delete(id, options);
  }

  /** Returns the name of the client that the token belongs to. Rejects with `unauthorized` if the token is unknown. */
  async whoami(options?: CallOptions): Promise<string> {
    return this.transport.request({ method: "GET", path: "/api/whoami" }, options, (response, text) => {
      check(isOfType(response, "text/plain"));
      return text;
    });
  }
}
