import { expect, test } from "bun:test";
import { isLinearizable, type Operation } from "./linearizability.ts";

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

/** Each row: what it is, whether it is linearizable, and its operations with their start, end and answer. */
const HISTORIES = `
a read after a write | true | create 0 1 ok, finish 2 3 ok, get 4 5 done
a read that misses a write before it | false | create 0 1 ok, finish 2 3 ok, get 4 5 open
a read before a write beside it | true | create 0 1 ok, finish 2 5 ok, get 3 4 open
reads that go back | false | create 0 1 ok, finish 2 9 ok, get 3 4 done, get 5 6 open
a late write without a response | true | create 0 1 ok, finish 2 3, get 4 5 open, get 6 7 done
a write that is read before it is sent | false | create 0 1 ok, get 2 3 done, finish 4 5
an absent to-do | true | get 0 1 absent, create 2 3 ok, delete 4 5 ok, get 6 7 absent
a to-do that is read after its deletion | false | create 0 1 ok, delete 2 3 ok, get 4 5 open
a write to an absent to-do that succeeds | false | finish 0 1 ok, create 2 3 ok
`;

test.each(
  HISTORIES.trim()
    .split("\n")
    .map((row) => row.split(" | ")),
)("isLinearizable judges %s: %s", (_what, expected, operations = "") => {
  const history = operations.split(", ").map((operation) => {
    const [call, start, end, answer] = operation.split(" ");
    return { call, start: Number(start), end: Number(end), answer } as Operation;
  });
  expect(String(isLinearizable(history))).toBe(expected ?? "");
});
