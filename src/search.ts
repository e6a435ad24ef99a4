const ASCII = /^[\x20-\x7e]*$/;

/** Returns a text without case and accents, so that texts that differ only in these are equal. */
export function foldText(text: string): string {
  if (ASCII.test(text)) return text.toLowerCase();
  // Upper case first: it makes "ß" equal to "ss", and all forms of a Greek sigma equal.
  return text.normalize("NFKD").replace(/\p{M}/gu, "").toUpperCase().toLowerCase().replaceAll("ς", "σ");
}

/** The folded title, kept in the to-do itself: 100,000 lookups in a WeakMap take longer than the search. */
const FOLDED = Symbol("folded title");

interface Titled {
  readonly title: string;
  [FOLDED]?: string;
}

function foldedTitle(todo: Titled): string {
  todo[FOLDED] ??= foldText(todo.title);
  return todo[FOLDED];
}

/**
 * Returns a function that tests whether a title contains all words of the query, in any order and without regard to case and
 * accents. A blank query matches every title.
 */
export function createMatcher(query: string): (todo: Titled) => boolean {
  const words = foldText(query)
    .split(/\s+/)
    .filter((word) => word !== "");
  return (todo) => words.every((word) => foldedTitle(todo).includes(word));
}

/** The titles that are prepared at once. This takes a few milliseconds. */
const PREPARED_AT_ONCE = 2000;

/** Prepares titles for the search in small steps, so that the first key does not wait for all of them. */
export async function prepareSearch(todos: readonly Titled[]): Promise<void> {
  for (let start = 0; start < todos.length; start += PREPARED_AT_ONCE) {
    for (const todo of todos.slice(start, start + PREPARED_AT_ONCE)) foldedTitle(todo);
    await new Promise((resolve) => setTimeout(resolve));
  }
}
