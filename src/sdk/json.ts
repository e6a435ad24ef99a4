import type { Todo, TodoId } from "./types.ts";

/**
 * Parses JSON and keeps ids as text, because a number would be rounded. A quote within a JSON string has a backslash
 * before it, so the pattern matches member names only, whatever the titles contain.
 */
export function parseJson(json: string): unknown {
  return JSON.parse(json.replace(/([{,]\s*"id"\s*:\s*)(\d+)/g, '$1"$2"'));
}

/** Compares two ids by value: negative if `a` is smaller. Strings of digits alone would sort "10" before "9". */
export const compareIds = (a: TodoId, b: TodoId): number =>
  a.length - b.length || (a < b ? -1 : Number(a > b));

/**
 * Returns the index of a to-do, or the index at which to insert it. The to-dos are in ascending order of id if `direction`
 * is 1, and in descending order if it is -1.
 */
export function indexOf(todos: readonly Todo[], id: TodoId, direction: 1 | -1 = 1): number {
  let low = 0;
  let high = todos.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (compareIds(todos[middle]?.id ?? id, id) * direction < 0) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** Returns the to-do with an id. The to-dos are in ascending order of id. */
export function findTodo(todos: readonly Todo[], id: TodoId): Todo | undefined {
  const todo = todos[indexOf(todos, id)];
  return todo?.id === id ? todo : undefined;
}

/** Returns the id of a parsed object. Throws a SyntaxError if it has none. */
export function parseId(value: unknown): TodoId {
  if (isObject(value) && "id" in value && typeof value.id === "string") return value.id;
  throw new SyntaxError("not a to-do");
}

/** Returns the to-do in a parsed object. Throws a SyntaxError if it is not a to-do. */
export function parseTodo(value: unknown): Todo {
  const id = parseId(value);
  if (isObject(value) && "title" in value && "done" in value) {
    const { title, done } = value;
    if (typeof title === "string" && typeof done === "boolean") return { id, title, done };
  }
  throw new SyntaxError("not a to-do");
}

export const readTodo = (_response: Response, text: string): Todo => parseTodo(parseJson(text));

export const isObject = (value: unknown): value is object => typeof value === "object" && value !== null;
