import { describe, expect, test } from "bun:test";
import { compareIds, parseId, parseJson, parseTodo } from "./json.ts";

const MAX = "18446744073709551615";

describe("parseJson", () => {
  test.each<[what: string, json: string, expected: unknown]>([
    ["an id above 2^53", `{"id":${MAX}}`, { id: MAX }],
    ["an id that is not the first member", `{"done":true,"id":${MAX}}`, { done: true, id: MAX }],
    ["an id with spaces around it", `{ "id" : ${MAX} }`, { id: MAX }],
    ["ids of a list", '[{"id":1},{"id":2}]', [{ id: "1" }, { id: "2" }]],
    ["an id that is a string", '{"id":"c7kcKWBu"}', { id: "c7kcKWBu" }],
    ["other numbers", '{"status":404,"ids":1}', { status: 404, ids: 1 }],
  ])("parses %s without loss", (_what, json, expected) => {
    expect(parseJson(json)).toEqual(expected);
  });

  test.each(['{"id":1,"title":"x"}', ',"id":2', '\\",\\"id\\":3', '\\\\","id":4', '{\n"id": 5'])(
    "does not change a title that contains %j",
    (title) => {
      expect(parseJson(JSON.stringify({ id: 7, title }))).toEqual({ id: "7", title });
    },
  );

  test("throws a SyntaxError for text that is not JSON", () => {
    expect(() => parseJson('{"id":1')).toThrow(SyntaxError);
  });
});

describe("todoOf", () => {
  const todo = { id: MAX, title: "a", done: false };

  test("returns a to-do without other members", () => {
    expect(parseTodo({ ...todo, extra: 1 })).toEqual(todo);
  });

  test.each<[what: string, value: unknown]>([
    ["null", null],
    ["text", "a"],
    ["a list", [todo]],
    ["a to-do without id", { title: "a", done: false }],
    ["an id that is a number", { ...todo, id: 1 }],
    ["a title that is a number", { ...todo, title: 1 }],
    ["done that is a string", { ...todo, done: "false" }],
  ])("throws a SyntaxError for %s", (_what, value) => {
    expect(() => parseTodo(value)).toThrow(SyntaxError);
  });
});

test("parseId reads only the id", () => {
  expect(parseId({ id: "7" })).toBe("7");
  expect(() => parseId({})).toThrow(SyntaxError);
});

test("compareIds orders ids by value", () => {
  const ids = ["1", "2", "9", "10", "99", "100", MAX];
  expect(ids.toReversed().toSorted(compareIds)).toEqual(ids);
  expect(compareIds(MAX, MAX)).toBe(0);
});
