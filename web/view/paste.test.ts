import { expect, test } from "bun:test";
import { MAX_TITLE_LENGTH as SERVICE_MAX_TITLE_LENGTH } from "../../src/todo.ts";
import { MAX_TITLE_LENGTH, parseLines, toMarkdown } from "./paste.ts";

const titles = (text: string): string[] =>
  parseLines(text).map(({ title, done }) => (done ? `(${title})` : title));

test("parseLines removes list markers and skips blank lines", () => {
  const text =
    "- buy milk\r\n* call home\n\n 1. pay rent\r12. \n\t- [ ] one\n[ ] two\n* [x] three\n[X] four\n- \n[ ]\n-";
  expect(titles(text)).toEqual(["buy milk", "call home", "pay rent", "one", "two", "(three)", "(four)"]);
});

test("parseLines removes the markers of note apps and of Unicode", () => {
  const text =
    "• milk\n•\tbread\n+ eggs\n– tea\n— salt\n2) rice\n☐ oil\n☐oats\n☑ nuts\n• ☒ figs\n✅ dates\n✔️ plums\n◦ peas\n•\n☐";
  expect(titles(text)).toEqual(
    ["milk", "bread", "eggs", "tea", "salt", "rice", "oil", "oats"].concat(
      ...["(nuts)", "(figs)", "(dates)", "(plums)", "peas"],
    ),
  );
});

test("parseLines keeps text that only resembles a list marker", () => {
  const text =
    "-5 degrees\n1.5 liters\n*bold*\n[link](url)\n[xyz]\n--- rule\n2 eggs\nx\n+1 for pizza\n2)x\n–5";
  expect(titles(text).join("\n")).toBe(text);
});

test("parseLines removes only one marker per line", () => {
  expect(titles("- - a\n- [ ] [x] b\n1. 2. c")).toEqual(["- a", "[x] b", "2. c"]);
});

test("parseLines separates lines where Unicode does, and leaves out lines without a visible character", () => {
  const text =
    "a\u2028b\u2029c\x85d\ve\ff\r\ng\n\u200B\n- \u2060\n\uFEFF\n\u3164\n[ ] \u00AD\n\u2800\n\u200Fh";
  expect(titles(text)).toEqual(["a", "b", "c", "d", "e", "f", "g", "\u200Fh"]);
});

test("parseLines reads markers after direction marks", () => {
  const text = "\u200E- [x] a\n\u202B\u2067* b\n- \u200F[x] c\n\u061C☑ d\n-\u200E e\n \u200E1. f";
  expect(titles(text)).toEqual(["(a)", "b", "(c)", "(d)", "e", "f"]);
});

test("parseLines marks titles that the service rejects as too long", () => {
  expect(MAX_TITLE_LENGTH).toBe(SERVICE_MAX_TITLE_LENGTH);
  const lines = parseLines(`- ${"😀".repeat(120)}\n${"x".repeat(121)}`);
  expect(lines.map(({ isTooLong }) => isTooLong)).toEqual([false, true]);
});

test("toMarkdown writes Markdown that parseLines reads back", () => {
  const todos = [
    { title: "- one", done: false },
    { title: "two\u2028lines", done: true },
  ];
  const markdown = toMarkdown(todos);
  expect(markdown).toBe("- [ ] - one\n- [x] two lines\n");
  expect(titles(markdown)).toEqual(["- one", "(two lines)"]);
});
