import { expect, test } from "bun:test";
import { type Answer, isLinearizable, type Operation } from "./linearizability.ts";

test("isLinearizable accepts many writes without a response", () => {
  const writes = Array.from(
    { length: 30 },
    (_, n): Operation => ({ call: n % 2 ? "finish" : "reopen", start: 2, end: 3, answer: undefined }),
  );
  const reads = Array.from(
    { length: 30 },
    (_, n): Operation => ({ call: "get", start: 4 + 2 * n, end: 5 + 2 * n, answer: n % 2 ? "done" : "open" }),
  );
  const created = { call: "create", start: 0, end: 1, answer: "ok" } as const;
  expect(isLinearizable([created, ...writes, ...reads])).toBe(true);
});

type Row = [call: Operation["call"], start: number, end: number, answer?: Answer];
const MADE: Row = ["create", 0, 1, "ok"];

test.each<[what: string, expected: boolean, rows: Row[]]>([
  ["a read after a write", true, [MADE, ["finish", 2, 3, "ok"], ["get", 4, 5, "done"]]],
  ["a read that misses a write before it", false, [MADE, ["finish", 2, 3, "ok"], ["get", 4, 5, "open"]]],
  ["a read before a write beside it", true, [MADE, ["finish", 2, 5, "ok"], ["get", 3, 4, "open"]]],
  ["reads that go back", false, [MADE, ["finish", 2, 9, "ok"], ["get", 3, 4, "done"], ["get", 5, 6, "open"]]],
  [
    "a late write without a response",
    true,
    [MADE, ["finish", 2, 3], ["get", 4, 5, "open"], ["get", 6, 7, "done"]],
  ],
  ["a write that is read before it is sent", false, [MADE, ["get", 2, 3, "done"], ["finish", 4, 5]]],
  [
    "an absent to-do",
    true,
    [
      ["get", 0, 1, "absent"],
      ["create", 2, 3, "ok"],
      ["delete", 4, 5, "ok"],
      ["get", 6, 7, "absent"],
    ],
  ],
  ["a to-do that is read after its deletion", false, [MADE, ["delete", 2, 3, "ok"], ["get", 4, 5, "open"]]],
  [
    "a write to an absent to-do that succeeds",
    false,
    [
      ["finish", 0, 1, "ok"],
      ["create", 2, 3, "ok"],
    ],
  ],
])("isLinearizable judges %s: %p", (_what, expected, rows) => {
  const history = rows.map(([call, start, end, answer]): Operation => ({ call, start, end, answer }));
  expect(isLinearizable(history)).toBe(expected);
});
