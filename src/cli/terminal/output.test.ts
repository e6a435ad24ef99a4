import { expect, test } from "bun:test";
import fc from "fast-check";
import { escapeControls } from "../../escape-controls.ts";
import { truncate } from "./output.ts";

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
