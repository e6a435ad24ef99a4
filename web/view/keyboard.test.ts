import { expect, test } from "bun:test";
import { toLetter } from "./keyboard.ts";

test.each([
  ["n", "KeyN", "n", "Latin"],
  ["N", "KeyN", "n", "caps lock"],
  ["z", "KeyY", "z", "German"],
  ["y", "KeyZ", "y", "German"],
  ["n", "KeyL", "n", "Dvorak"],
  ["т", "KeyN", "n", "Russian"],
  ["Я", "KeyZ", "z", "Russian with caps lock"],
  ["ζ", "KeyZ", "z", "Greek"],
  ["ז", "KeyZ", "z", "Hebrew"],
  ["ى", "KeyN", "n", "Arabic"],
  ["ื", "KeyN", "n", "Thai"],
  ["/", "KeyQ", "/", "Hebrew"],
  ["ظ", "Slash", "/", "Arabic"],
  ["ö", "Semicolon", "ö", "German"],
  ["Tab", "Tab", "tab", "any"],
])("toLetter reads the key %s at the place %s as %s (%s)", (key, code, letter) => {
  expect(toLetter({ key, code, shiftKey: false })).toBe(letter);
});

test("toLetter reads an Arabic question mark", () => {
  expect(toLetter({ key: "؟", code: "Slash", shiftKey: true })).toBe("?");
});
