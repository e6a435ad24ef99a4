import { expect, test } from "bun:test";
import fc from "fast-check";
import { escapeControls, escapeControlsJson } from "./escape-controls.ts";

test.each<[what: string, text: string, shown: string]>([
  ["an escape sequence", "\x1b]0;owned\x07", "<U+001B>]0;owned<U+0007>"],
  ["an escape sequence of one character", "\x9b31m", "<U+009B>31m"],
  ["line breaks", "a\r\nb\u2028c\u0085", "a<U+000D><U+000A>b<U+2028>c<U+0085>"],
  ["characters that change the text direction", "\u202eevil\u2066", "<U+202E>evil<U+2066>"],
  ["invisible characters", "a\u200bb\ufeffc\u{e0041}", "a<U+200B>b<U+FEFF>c<U+E0041>"],
  ["zero-width joiners in emoji and words", "👨‍👩‍👧 می‌خواهم", "👨‍👩‍👧 می‌خواهم"],
  ["plain text", "Zoë 日本 😀 <U+001B>", "Zoë 日本 😀 <U+001B>"],
])("escapeControls escapes only unsafe characters: %s", (_what, text, shown) => {
  expect(escapeControls(text)).toBe(shown);
});

test("escapeControlsJson keeps the value and escapes unsafe characters", () => {
  fc.assert(
    fc.property(fc.string({ unit: "binary" }), (text) => {
      const json = escapeControlsJson(JSON.stringify(text));
      expect(JSON.parse(json)).toBe(text);
      expect(escapeControls(json)).toBe(json);
    }),
  );
  expect(escapeControlsJson('"\u009b\u{e0041}"')).toBe('"\\u009b\\udb40\\udc41"');
});
