import { readPosition } from "./exchange.ts";
import { check, parseJson, parseTodo } from "./json.ts";
import type { Transport } from "./transport.ts";
import type { CallOptions, ListQuery, TodoList } from "./types.ts";

/** Requests the to-dos, or a page of them. */
export function requestList(
  request: Transport["request"],
  query: ListQuery,
  options: CallOptions | undefined,
): Promise<TodoList> {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) if (value !== undefined) search.set(name, String(value));
  const path = `/api/todos?${search}`.replace(/\?$/, "");
  return request({ method: "GET", path }, options, (response, text) => {
    const todos: unknown = parseJson(text);
    const position = readPosition(response);
    const next = /[?&]after=(\d+)[^>]*>; *rel="?next/.exec(response.headers.get("link") ?? "")?.[1];
    check(Array.isArray(todos) && position !== undefined);
    return {
      todos: todos.map(parseTodo),
      position,
      ...(next !== undefined && { next }),
    };
  });
}
