import { expect, test } from "bun:test";
import type { Todo } from "../../src/sdk/client.ts";
import { type Choice, findRow, indexOfRow, select } from "./selection.ts";

const ALL: Choice = { filter: "all", query: "", isFolded: false, isOldestFirst: true };
/** The ids sort differently as text. */
const TODOS: readonly Todo[] = [
  { id: "2", title: "milk", done: true },
  { id: "9", title: "Café", done: false },
  { id: "10", title: "cafe bar", done: true },
  { id: "11", title: "eggs", done: false },
];

test.each<[string, Partial<Choice>, readonly string[]]>([
  ["the open to-dos, the fold and the done ones", {}, ["9", "11", "fold", "2", "10"]],
  ["the newest first", { isOldestFirst: false }, ["11", "9", "fold", "10", "2"]],
  ["no done ones when they are folded", { isFolded: true }, ["9", "11", "fold"]],
  ["the open ones without a fold", { filter: "open" }, ["9", "11"]],
  ["the done ones, also when they are folded", { filter: "done", isFolded: true }, ["2", "10"]],
  ["the matches of a search without a fold", { query: "CAFE", isFolded: true }, ["9", "10"]],
  ["all for a search for blanks", { query: " ", isFolded: true }, ["9", "11", "fold"]],
])("a selection has %s", (_what, choice, rows) => {
  const selection = select(TODOS, { ...ALL, ...choice });
  expect(selection.rows.map((todo) => todo?.id ?? "fold")).toEqual([...rows]);
  for (const [index, todo] of selection.rows.entries()) expect(indexOfRow(selection, todo)).toBe(index);
});

test("a selection counts the matches by filter, and the open ones of all to-dos", () => {
  const { counts, totalOpen, open, done } = select(TODOS, { ...ALL, filter: "done", query: "cafe" });
  expect({ counts, totalOpen }).toEqual({ counts: { all: 2, open: 1, done: 1 }, totalOpen: 2 });
  expect([open, done].map((todos) => todos.map(({ id }) => id))).toEqual([["9"], ["10"]]);
});

test("a selection without done to-dos has no fold", () => {
  expect(select(TODOS.slice(3), ALL).rows).toEqual(TODOS.slice(3));
});

test("a row is found by id, and a missing one is sorted in", () => {
  for (const isOldestFirst of [true, false]) {
    const selection = select(TODOS, { ...ALL, isOldestFirst });
    expect(["9", "10", "3"].map((id) => findRow(selection, id))).toEqual(
      isOldestFirst ? [0, 4, undefined] : [1, 3, undefined],
    );
    expect(indexOfRow(selection, { id: "10", done: false })).toBe(1);
    expect(indexOfRow(selection, { id: "3", done: true })).toBe(4);
  }
});

test("a selection has another view when the user wants to see something else, and the same when only to-dos change", () => {
  const view = (choice: Partial<Choice>, todos = TODOS) => select(todos, { ...ALL, ...choice }).view;
  const choices = [{ filter: "open" }, { query: "m" }, { isFolded: true }, { isOldestFirst: false }] as const;
  expect(new Set([view({}), ...choices.map((choice) => view(choice))]).size).toBe(5);
  expect(view({}, [])).toBe(view({}));
});
