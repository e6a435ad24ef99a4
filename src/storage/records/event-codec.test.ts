import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { encodeTodo, type TodoEvent } from "../../todo.ts";
import { createdTodo, decodeEvents, encodeEvent } from "./event-codec.ts";

const id = fc.bigInt({ min: 1n, max: 2n ** 64n - 1n });
const change = fc.oneof(
  fc.record({ type: fc.constant("deleted" as const), id }),
  fc
    .record({
      type: fc.constantFrom("created" as const, "updated" as const),
      id,
      title: fc.string(),
      done: fc.boolean(),
    })
    .map(({ type, ...todo }) => ({ type, id: todo.id, json: encodeTodo(todo) })),
);

test("createdTodo returns the JSON of a created to-do only", () => {
  fc.assert(
    fc.property(change, (changed) => {
      const event: TodoEvent = { ...changed, position: { epoch: "e", sequence: 1 } };
      expect(createdTodo(encodeEvent(event))).toBe(event.type === "created" ? event.json : undefined);
    }),
  );
});

describe("decodeEvents", () => {
  test("returns the encoded events with consecutive positions", () => {
    fc.assert(
      fc.property(fc.array(change, { minLength: 1 }), fc.nat(), (changes, before) => {
        const events = changes.map((event, index): TodoEvent => {
          return { ...event, position: { epoch: "e", sequence: before + 1 + index } };
        });
        const lines = events.map(encodeEvent).join("\n");
        expect(decodeEvents(lines, { epoch: "e", sequence: before + changes.length })).toEqual(events);
      }),
    );
  });

  test.each(["", "+", "*7", "7", "-x", '+{"title":"a"}', ' +{"id":7}'])("rejects the line %j", (line) => {
    const decode = () => decodeEvents(`-1\n${line}`, { epoch: "e", sequence: 5 });
    expect(decode).toThrow("the event at position 5 is invalid");
  });
});
