import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { encodeTodo } from "../../todo.ts";
import { createdTodos, decodeEvents, encodeEvent, type StoredEvent } from "./event-codec.ts";

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

test("createdTodos returns the JSON of each created to-do in order", () => {
  fc.assert(
    fc.property(fc.array(change), (changes) => {
      const events = changes.map((event): StoredEvent => {
        return { ...event, position: { epoch: "e", sequence: 1 } };
      });
      const created = createdTodos(events.map(encodeEvent).join("\n"));
      expect(created).toEqual(events.flatMap((event) => (event.type === "created" ? event.json : [])));
    }),
  );
});

describe("decodeEvents", () => {
  test("returns the encoded events with consecutive positions", () => {
    fc.assert(
      fc.property(fc.array(change, { minLength: 1 }), fc.nat(), (changes, before) => {
        const events = changes.map((event, index): StoredEvent => {
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
