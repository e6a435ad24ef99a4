import { expect, test } from "bun:test";
import fc from "fast-check";
import { escapeControls } from "../../escape-controls.ts";
import { ProgressLine, truncate } from "./output.ts";

test.each<[text: string, columns: number, shown: string]>([
  ["buy milk", 8, "buy milk"],
  ["buy milk", 7, "buy mi…"],
  ["日本語", 6, "日本語"],
  ["日本語", 5, "日本…"],
  ["日本語", 4, "日…"],
  ["👨‍👩‍👧👨‍👩‍👧", 3, "👨‍👩‍👧…"],
  ["e\u0301e\u0301e\u0301", 2, "e\u0301…"],
  ["e\u0301e\u0301e\u0301", 3, "e\u0301e\u0301e\u0301"],
  ["\uff21\uff22\uff23\uff24", 7, "\uff21\uff22\uff23…"],
  ["日e\u0301本", 4, "日e\u0301…"],
])("truncate shortens %s to %i columns: %s", (text, columns, shown) => {
  expect(truncate(text, columns)).toBe(shown);
});

test("truncate never exceeds the given width", () => {
  fc.assert(
    fc.property(fc.string({ unit: "grapheme" }), fc.integer({ min: 1, max: 20 }), (text, columns) => {
      expect(Bun.stringWidth(truncate(escapeControls(text), columns))).toBeLessThanOrEqual(columns);
    }),
  );
});

function open(isTTY = true) {
  const written: string[] = [];
  const clock = { now: 0 };
  const output = { isTTY, columns: 60, write: (text: string) => written.push(text) > 0 };
  const line = new ProgressLine(output, () => clock.now);
  return { line, clock, written: () => written.splice(0).join("") };
}

test("a progress line appears after a second, is updated, and is removed when the step is done", () => {
  const { line, clock, written } = open();
  line.report("importing", 1000, 1_000_000);
  clock.now = 999;
  line.report("importing", 50_000, 1_000_000);
  expect(written()).toBe("");
  clock.now = 1000;
  line.report("importing", 51_000, 1_000_000);
  expect(written()).toBe("\rimporting: 51,000 of 1,000,000 to-dos, 50,000/s\x1b[K");
  clock.now = 1199;
  line.report("importing", 60_000, 1_000_000);
  expect(written()).toBe("");
  clock.now = 2000;
  line.report("importing", 101_000, undefined);
  expect(written()).toBe("\rimporting: 101,000 to-dos, 50,000/s\x1b[K");
  line.report("importing", 1_000_000, 1_000_000);
  expect(written()).toBe("\r\x1b[K");
  line.clear();
  expect(written()).toBe("");
});

test("a progress line counts the rate of each step, and fits the terminal", () => {
  const { line, clock, written } = open();
  clock.now = 5000;
  line.report("copying", 10, 20);
  expect(written()).toBe("\rcopying: 10 of 20 to-dos\x1b[K");
  clock.now = 6000;
  line.report("a step with a name that is much too long for this terminal", 1, 2);
  expect(written()).toBe("\ra step with a name that is much too long for this terminal…\x1b[K");
});

test("a progress line shows nothing in a pipe", () => {
  const { line, clock, written } = open(false);
  clock.now = 5000;
  line.report("copying", 10, 20);
  line.clear();
  expect(written()).toBe("");
});
