import { isSameTodo } from "./todo.ts";
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

/** Returns the index at which a sorted list changes from what is before a place to what is not. */
export function searchSorted(length: number, isBefore: (index: number) => boolean): number {
  let low = 0;
  let high = length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (isBefore(middle)) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** Returns the index of a to-do, or the index at which to insert it. The to-dos are in ascending order of id. */
export const indexOf = (todos: readonly Todo[], id: TodoId): number =>
  searchSorted(todos.length, (index) => compareIds(todos[index]?.id ?? id, id) < 0);

/** Returns the to-do with an id. The to-dos are in ascending order of id. */
export function findTodo(todos: readonly Todo[], id: TodoId): Todo | undefined {
  const todo = todos[indexOf(todos, id)];
  return todo?.id === id ? todo : undefined;
}

/**
 * Returns to-dos with the objects of `before` for those that are equal, and `before` itself if all are. Both are in
 * ascending order of id.
 */
export function reuse<Before extends readonly Todo[]>(
  todos: readonly Todo[],
  before: Before,
): Before | Todo[] {
  let index = 0;
  const reused = todos.map((todo) => {
    while (compareIds(before[index]?.id ?? todo.id, todo.id) < 0) index++;
    const known = before[index] ?? todo;
    return isSameTodo(known, todo) ? known : todo;
  });
  const isSame = reused.length === before.length && reused.every((todo, at) => todo === before[at]);
  return isSame ? before : reused;
}

/** Returns the id of a parsed object. Throws a SyntaxError if it has none. */
export function parseId(value: unknown): TodoId {
  check(hasTexts(value, "id"));
  return value.id;
}

/** Returns the to-do in a parsed object. Throws a SyntaxError if it is not a to-do. */
export function parseTodo(value: unknown): Todo {
  check(hasTexts(value, "id", "title") && "done" in value && typeof value.done === "boolean");
  const { id, title, done } = value;
  return { id, title, done };
}

export const readTodo = (_response: Response, text: string): Todo => parseTodo(parseJson(text));

/** Throws a SyntaxError if a response is not what the service sends. */
export function check(isValid: boolean): asserts isValid {
  if (!isValid) throw new SyntaxError("unexpected content");
}

/** Returns whether a value is an object whose members with these names are texts. */
export const hasTexts = <Name extends string>(
  value: unknown,
  ...names: readonly Name[]
): value is Readonly<Record<Name, string>> =>
  typeof value === "object" &&
  value !== null &&
  names.every((name) => typeof Reflect.get(value, name) === "string");
