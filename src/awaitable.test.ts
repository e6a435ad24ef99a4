import { expect, test } from "bun:test";
import { FOREIGN_THENABLES } from "../test/thenables.ts";
import { chain, isThenable } from "./awaitable.ts";

test.each(Object.entries(FOREIGN_THENABLES))("chain waits for %s", async (_what, thenable) => {
  const promise = thenable(async () => "settled");
  expect(isThenable(promise)).toBe(true);
  expect(await chain<unknown, unknown>(promise, (value) => [value])).toEqual(["settled"]);
});

test.each([undefined, null, true, "then", { name: "x" }, () => true])(
  "chain does not wait for %p",
  (value) => {
    expect(chain(value, (passed) => [passed])).toEqual([value]);
  },
);
