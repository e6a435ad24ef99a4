import { describe, expect, test } from "bun:test";
import { createParser, type Message, parseEvent } from "./event-stream.ts";

const messagesIn = (...pieces: readonly string[]): Message[] => pieces.flatMap(createParser());

const message = (id: string, data: string, type = "message"): Message => ({ id, type, data });

describe("createParser", () => {
  test.each<[what: string, pieces: readonly string[], expected: readonly Message[]]>([
    ["fields with and without a space", ["id: e-1\nevent:x\ndata:  y\n\n"], [message("e-1", " y", "x")]],
    ["a message without a type", ["id: e-1\ndata: y\n\n"], [message("e-1", "y")]],
    ["several data lines as one text", ["id: 1\ndata: a\ndata:\ndata: b\n\n"], [message("1", "a\n\nb")]],
    ["no message that lacks an id or data", ["data: y\n\nid: e-1\n\nevent: x\n\n"], []],
    ["no comments", [": x\n\n:\nid: e-1\n: y\ndata:\n\n"], [message("e-1", "")]],
    [
      "text with line breaks that are only those of Unicode",
      ["id: 1\ndata: a\u2028b\u2029c\u0085\n\n"],
      [message("1", "a\u2028b\u2029c\u0085")],
    ],
    ["no incomplete message", ["id: e-1\ndata: y\n"], []],
    ["a line break between pieces", ["id: e-1\r", "\ndata: y\r", "\n\r", "\n"], [message("e-1", "y")]],
    [
      "two messages with only carriage returns as line breaks",
      ["id: 1\rdata: a\r\rid: 2\rdata: b\r\r\r"],
      [message("1", "a"), message("2", "b")],
    ],
  ])("returns %s", (_what, pieces, expected) => {
    expect(messagesIn(...pieces)).toEqual([...expected]);
  });
});

describe("parseEvent", () => {
  const parse = (type: string, data: string) => parseEvent({ id: "e-1", type, data });

  test("returns each type of event, with exact ids", () => {
    const todo = { id: "18446744073709551615", title: "a", done: false };
    const json = '{"id":18446744073709551615,"title":"a","done":false}';
    expect(parse("position", "{}")).toEqual({ type: "connected", position: "e-1" });
    expect(parse("resync", "{}")).toEqual({ type: "resync", position: "e-1" });
    expect(parse("created", json)).toEqual({ type: "created", position: "e-1", todo });
    expect(parse("updated", json)).toEqual({ type: "updated", position: "e-1", todo });
    expect(parse("deleted", json)).toEqual({ type: "deleted", position: "e-1", id: todo.id });
  });

  test("returns undefined for an unknown type, regardless of its data", () => {
    expect(parse("archived", "not JSON")).toBeUndefined();
  });

  test("throws a SyntaxError for data that is not a to-do", () => {
    expect(() => parse("created", '{"id":1}')).toThrow(SyntaxError);
    expect(() => parse("deleted", "{}")).toThrow(SyntaxError);
  });
});
