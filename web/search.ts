import type { Todo } from "../src/sdk/client.ts";

const ASCII = /^[\x20-\x7e]*$/;

/** Returns a text without case and accents, so that texts that differ only in these are equal. */
export function foldText(text: string): string {
  if (ASCII.test(text)) return text.toLowerCase();
  // Upper case first: it makes "ß" equal to "ss", and all forms of a Greek sigma equal.
  return text.normalize("NFKD").replace(/\p{M}/gu, "").toUpperCase().toLowerCase().replaceAll("ς", "σ");
}

/** The folded title, kept in the to-do itself: 100,000 lookups in a WeakMap take longer than the search. */
const FOLDED = Symbol("folded title");

function foldedTitle(todo: Todo & { [FOLDED]?: string }): string {
  todo[FOLDED] ??= foldText(todo.title);
  return todo[FOLDED];
}

/** Returns a function that tests whether a title contains the query. A blank query matches every to-do. */
export function createMatcher(query: string): (todo: Todo) => boolean {
  const folded = foldText(query.trim());
  return folded === "" ? () => true : (todo) => foldedTitle(todo).includes(folded);
}

/** The titles that are prepared at once. This takes a few milliseconds. */
const PREPARED_AT_ONCE = 2000;

/** Prepares titles for the search in small steps, so that the first key does not wait for all of them. */
export async function prepareSearch(todos: readonly Todo[]): Promise<void> {
  for (let start = 0; start < todos.length; start += PREPARED_AT_ONCE) {
    for (const todo of todos.slice(start, start + PREPARED_AT_ONCE)) foldedTitle(todo);
    await new Promise((resolve) => setTimeout(resolve));
  }
}
