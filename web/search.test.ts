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

test("createMatcher finds a query anywhere in a title", () => {
  const todo = { id: 1n, title: "Buy Café au lait", done: false };
  const matches = ["cafe", " AU LAIT ", "é", "buy café", "", "  "].filter((query) =>
    createMatcher(query)(todo),
  );
  expect(matches).toEqual(["cafe", " AU LAIT ", "é", "buy café", "", "  "]);
  expect(["tea", "buycafe"].filter((query) => createMatcher(query)(todo))).toEqual([]);
});
