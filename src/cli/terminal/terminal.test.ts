import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { escapeControls, escapeControlsJson, truncate } from "./terminal.ts";

describe("untrusted text", () => {
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
});
