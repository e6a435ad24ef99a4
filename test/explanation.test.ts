import { expect, test } from "bun:test";
import { readFileSync } from "node:fs";

const read = (path: string): string => readFileSync(new URL(`../${path}`, import.meta.url), "utf8");

/** Returns the part of a page below a heading, up to the next heading of any level. */
function section(page: string, heading: string): string {
  const start = page.indexOf(`\n${heading}\n`);
  expect([heading, start]).not.toEqual([heading, -1]);
  const rest = page.slice(start + heading.length + 2);
  const end = rest.search(/^#/m);
  return end < 0 ? rest : rest.slice(0, end);
}

/** Returns the cells of the first table of a text, without its head. */
function tableIn(text: string): string[][] {
  const [table = ""] = /^\|.*\|$(?:\n\|.*\|$)*/m.exec(text) ?? [];
  return table
    .split("\n")
    .slice(2)
    .map((row) =>
      row
        .slice(1, -1)
        .split("|")
        .map((cell) => cell.trim()),
    );
}

test("the table of the model follows from its formula", () => {
  const page = read("docs/explanation/beyond-one-primary.md");
  const [, fixed, perTodo] = /h = ([\d.]+) ms \+ ([\d.]+) ms × b \+ s/.exec(page) ?? [];
  const rows = tableIn(section(page, "## A simple model"));
  expect(rows.length).toBe(6);
  for (const [name = "", ...rates] of rows) {
    const standbyMs = Number(/([\d.]+) ms/.exec(name)?.[1]);
    for (const [column, batch] of [1, 21, 64, 250, 1000].entries()) {
      const lockedMs = Number(fixed) + Number(perTodo) * batch + standbyMs;
      const ratio = Number(rates[column]?.replaceAll(",", "")) / ((batch / lockedMs) * 1000);
      expect([name, batch, ratio > 0.96 && ratio < 1.04]).toEqual([name, batch, true]);
    }
  }
});
