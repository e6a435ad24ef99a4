// cspell:ignore Crème brûlée brulee strasse straße ΣΊΣΥΦΟΣ σίσυφος İstanbul buycafe
import { expect, test } from "bun:test";
import { createMatcher, foldText } from "./search.ts";

test.each([
  ["Crème brûlée", "creme brulee"],
  ["STRASSE", "straße"],
  ["ΣΊΣΥΦΟΣ", "σίσυφος"],
  ["e\u0301clair", "Éclair"],
  ["İstanbul", "istanbul"],
  ["ＡＢＣ", "abc"],
])("foldText makes %s equal to %s", (left, right) => {
  expect(foldText(left)).toBe(foldText(right));
});

test("createMatcher finds the words of a query anywhere in a title", () => {
  const todo = { title: "Buy Café au lait" };
  const queries = ["cafe", " AU LAIT ", "é", "buy café", "lait  BUY", "", "  "];
  expect(queries.filter((query) => createMatcher(query)(todo))).toEqual(queries);
  expect(["tea", "buycafe", "buy tea"].filter((query) => createMatcher(query)(todo))).toEqual([]);
});
