import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { errorsOf } from "../test/rejection.ts";
import {
  encodeTodo,
  formatPosition,
  MAX_TITLE_LENGTH,
  MAX_TODO_ID,
  parseNewTodo,
  parsePatch,
  parseTodoId,
  withDone,
} from "./todo.ts";

const EMPTY = { field: "title", message: "must not be empty" };
const LONG = { field: "title", message: "must be at most 120 characters" };
const SURROGATE = { field: "title", message: "must be well-formed Unicode, without lone surrogates" };

const WHITESPACE =
  "\t\n\v\f\r \u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000";

const named = (value: unknown): [name: string, value: unknown] => [
  (JSON.stringify(value) ?? "undefined").slice(0, 50),
  value,
];

describe("parseTodoId", () => {
  test.each([
    ["0", 0n],
    ["1", 1n],
    ["007", 7n],
    ["0".repeat(50), 0n],
    ["9007199254740993", 9_007_199_254_740_993n],
    ["18446744073709551615", MAX_TODO_ID],
    ["00018446744073709551615", MAX_TODO_ID],
  ])("parses %s", (text, id) => {
    expect(parseTodoId(text)).toBe(id);
  });

  test("rejects other texts", () => {
    const texts = ["", "NaN", "__proto__", "18446744073709551616", "1\0", "\ufeff1", "9".repeat(5000)];
    expect(texts.filter((text) => parseTodoId(text) !== undefined)).toEqual([]);
  });

  test("parses only ASCII digits, up to the maximum", () => {
    const texts = fc.oneof(
      fc.string({ unit: fc.constantFrom(..."0123456789+-.e \n\u0661\uff11") }),
      fc.tuple(fc.nat(30), fc.bigInt(0n, 2n * MAX_TODO_ID)).map(([zeros, id]) => "0".repeat(zeros) + id),
    );
    fc.assert(
      fc.property(texts, (text) => {
        const id = /^[0-9]+$/.test(text) && BigInt(text) <= MAX_TODO_ID ? BigInt(text) : undefined;
        expect(parseTodoId(text)).toBe(id);
      }),
    );
  });
});

describe("parseNewTodo", () => {
  test.each([
    ["one character", "x"],
    ["120 characters", "x".repeat(120)],
    ["120 emoji, 240 UTF-16 units", "😀".repeat(120)],
    ["119 letters and an emoji", `${"x".repeat(119)}😀`],
    ["120 characters, including surrounding spaces", ` ${"x".repeat(118)} `],
    ["U+200B, which is not White_Space", "\u200b"],
    ["U+180E, which is no longer White_Space", "\u180e"],
  ])("accepts a title of %s unchanged", (_what, title) => {
    expect(parseNewTodo({ title })).toEqual({ title });
  });

  test.each([
    ["the empty string", "", [EMPTY]],
    ["U+0085, which JavaScript does not trim", "\u0085", [EMPTY]],
    ["U+FEFF, which Unicode does not call White_Space", "\ufeff", [EMPTY]],
    ["every other whitespace character", WHITESPACE, [EMPTY]],
    ["120 spaces", " ".repeat(120), [EMPTY]],
    ["121 spaces", " ".repeat(121), [EMPTY, LONG]],
    ["121 characters", "x".repeat(121), [LONG]],
    ["121 characters, including surrounding spaces", ` ${"x".repeat(119)} `, [LONG]],
    ["a family emoji twenty times, 7 code points each", "👨‍👩‍👧‍👦".repeat(20), [LONG]],
    ["a lone high surrogate", "\ud83d", [SURROGATE]],
    ["a lone low surrogate", "\ude00", [SURROGATE]],
    ["121 lone surrogates", "\ud83d".repeat(121), [LONG, SURROGATE]],
  ])("rejects a title of %s", (_what, title, errors) => {
    expect(errorsOf(() => parseNewTodo({ title }))).toEqual(errors);
  });

  test.each(
    [{}, JSON.parse('{"__proto__":{"title":"x"}}'), Object.create({ title: "x" }), null, undefined, "title"]
      .concat([[{ title: "x" }]], [Object.assign([], { title: "x" })])
      .map(named),
  )("requires a title in the body %s", (_name, body) => {
    expect(errorsOf(() => parseNewTodo(body))).toEqual([{ field: "title", message: "is required" }]);
  });

  test.each([null, 1])("rejects the title %p", (title) => {
    expect(errorsOf(() => parseNewTodo({ title }))).toEqual([
      { field: "title", message: "must be a string" },
    ]);
  });

  test("ignores other properties", () => {
    const body = JSON.parse('{"id":7,"done":true,"__proto__":{"title":"y"},"title":"x"}');
    expect(parseNewTodo(body)).toEqual({ title: "x" });
  });

  test.each(["grapheme", "binary"] as const)("returns exactly the valid titles of %s units", (unit) => {
    fc.assert(
      fc.property(fc.string({ unit, maxLength: 140, size: "max" }), (title) => {
        const isLong = [...title].length > MAX_TITLE_LENGTH;
        const isBroken = !title.isWellFormed() || isLong || title.replaceAll("\u0085", "").trim() === "";
        const errors = errorsOf(() => expect(parseNewTodo({ title })).toEqual({ title }));
        expect(errors.length > 0).toBe(isBroken);
        expect(errors.some(({ message }) => message === LONG.message)).toBe(isLong);
      }),
    );
  });
});

describe("parsePatch", () => {
  test.each([true, false])("accepts %p", (done) => {
    expect(parsePatch({ done, title: "ignored", id: 9 })).toEqual({ done });
  });

  test.each(
    [{}, JSON.parse('{"__proto__":{"done":true}}'), Object.create({ done: true }), null, true]
      .concat([[true]])
      .map(named),
  )("requires done in the body %s", (_name, body) => {
    expect(errorsOf(() => parsePatch(body))).toEqual([{ field: "done", message: "is required" }]);
  });

  test("accepts only an own boolean property", () => {
    fc.assert(
      fc.property(fc.jsonValue(), (value) => {
        const errors = errorsOf(() => parsePatch({ done: value }));
        expect(errors).toEqual(
          typeof value === "boolean" ? [] : [{ field: "done", message: "must be a boolean" }],
        );
      }),
    );
  });
});

describe("encodeTodo", () => {
  test.each([
    ['{"id":1,"title":"milk","done":false}', { id: 1n, title: "milk", done: false }],
    ['{"id":9007199254740993,"title":"x","done":true}', { id: 2n ** 53n + 1n, title: "x", done: true }],
    [`{"id":${MAX_TODO_ID},"title":"\\u0000","done":true}`, { id: MAX_TODO_ID, title: "\0", done: true }],
    ['{"id":1,"title":"\\"\\\\\\n","done":false}', { id: 1n, title: '"\\\n', done: false }],
  ])("writes %s", (json, todo) => {
    expect(encodeTodo(todo)).toBe(json);
  });

  test("encodes a JSON object with exactly three keys, which JSON.parse accepts", () => {
    const todo = fc.record({
      id: fc.bigInt(1n, 2n ** 53n - 1n),
      title: fc.string({ unit: "binary" }),
      done: fc.boolean(),
    });
    fc.assert(
      fc.property(todo, ({ id, title, done }) => {
        expect(JSON.parse(encodeTodo({ id, title, done }))).toEqual({ id: Number(id), title, done });
      }),
    );
  });
});

test("withDone returns a copy of an encoded to-do with any title", () => {
  const title = fc.oneof(fc.string(), fc.constantFrom(',"title":', '","done":true}', "a,b", ':"'));
  fc.assert(
    fc.property(fc.bigInt({ min: 1n, max: MAX_TODO_ID }), title, fc.boolean(), (id, text, done) => {
      const json = encodeTodo({ id, title: text, done });
      expect(withDone(json, !done)).toBe(encodeTodo({ id, title: text, done: !done }));
    }),
  );
});

test("formatPosition joins epoch and sequence", () => {
  expect(formatPosition({ epoch: "9f86d081", sequence: 42 })).toBe("9f86d081-42");
});
