import { parseJson, parseTodo } from "./json.ts";
import type { Transport } from "./transport.ts";
import type { CallOptions, ListQuery, TodoList } from "./types.ts";

/** Requests the to-dos, or a page of them. */
export function requestList(
  request: Transport["request"],
  query: ListQuery,
  options: CallOptions,
): Promise<TodoList> {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) if (value !== undefined) search.set(name, String(value));
  const path = `/api/todos?${search}`.replace(/\?$/, "");
  return request({ method: "GET", path }, options, ({ headers }, text) => {
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
