import type { Todo, TodoId } from "../../src/sdk/client.ts";
import { compareIds, searchSorted } from "../../src/sdk/json.ts";
import { createMatcher } from "../../src/search.ts";

export type Filter = "all" | "open" | "done";

/** What the user wants to see. */
export interface Choice {
  readonly filter: Filter;
  readonly query: string;
  /** Where open and done to-dos are shown, the done ones are hidden. */
  readonly isFolded: boolean;
  readonly isOldestFirst: boolean;
}

/** A to-do, or `undefined` for the fold: the row between the open and the done to-dos that shows and hides the latter. */
export type Item = Pick<Todo, "id" | "done"> | undefined;

/** What the page shows of the list. */
export interface Selection {
  /** Equal while the user wants to see the same, so that only to-dos differ. */
  readonly view: string;
  readonly isOldestFirst: boolean;
  /** All to-dos in ascending order of id. */
  readonly todos: readonly Todo[];
  readonly totalOpen: number;
  /** The to-dos that match the search, in the order of the page. */
  readonly open: readonly Todo[];
  readonly done: readonly Todo[];
  readonly counts: Readonly<Record<Filter, number>>;
  readonly rows: readonly (Todo | undefined)[];
  /** The rows below the fold are shown. */
  readonly isExpanded: boolean;
}

export const isSearching = ({ query }: Pick<Choice, "query">): boolean => query.trim() !== "";

/** Returns things that are in ascending order of id in the order of the page. */
export const inOrder = <T>(things: readonly T[], isOldestFirst: boolean): readonly T[] =>
  isOldestFirst ? things : things.toReversed();

/** @param todos in ascending order of id */
export function select(todos: readonly Todo[], choice: Choice): Selection {
  const { filter, query, isFolded, isOldestFirst } = choice;
  const found = inOrder(todos.filter(createMatcher(query)), isOldestFirst);
  const open = found.filter((todo) => !todo.done);
  const done = found.filter((todo) => todo.done);
  const hasFold = !isSearching(choice) && done.length > 0;
  const fold = hasFold ? [undefined] : [];
  const all = [...open, ...fold, ...(hasFold && isFolded ? [] : done)];
  return {
    ...{ view: JSON.stringify([filter, query, isFolded, isOldestFirst]), isOldestFirst, todos, open, done },
    totalOpen: todos.reduce((sum, todo) => sum + (todo.done ? 0 : 1), 0),
    counts: { all: found.length, open: open.length, done: done.length },
    rows: { all, open, done }[filter],
    isExpanded: !isFolded,
  };
}

/** Returns the index of a row, or the index at which it would be. */
export const indexOfRow = ({ rows, isOldestFirst }: Selection, item: Item): number =>
  searchSorted(rows.length, (index) => compare(rows[index], item, isOldestFirst) < 0);

/** Returns the index of the row of a to-do, or `undefined` if it has none. */
export function findRow(selection: Selection, id: TodoId): number | undefined {
  const indexes = [false, true].map((done) => indexOfRow(selection, { id, done }));
  return indexes.find((index) => selection.rows[index]?.id === id);
}

function compare(a: Item, b: Item, isOldestFirst: boolean): number {
  const order = part(a) - part(b);
  if (order !== 0 || a === undefined || b === undefined) return order;
  return isOldestFirst ? compareIds(a.id, b.id) : compareIds(b.id, a.id);
}

const part = (item: Item): number => (item === undefined ? 1 : item.done ? 2 : 0);
