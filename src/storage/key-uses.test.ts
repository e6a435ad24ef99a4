import { afterEach, beforeEach, expect, jest, test } from "bun:test";
import { KeyUses } from "./key-uses.ts";

const MINUTE = 60_000;

beforeEach(() => {
  jest.useFakeTimers();
});
afterEach(() => {
  jest.useRealTimers();
});

/** Uses, and what is written of them while the store can be reached. */
function start() {
  const written: Record<string, number>[] = [];
  let isDown = false;
  const uses = new KeyUses(async (some) => {
    if (isDown) throw new Error("the store is away");
    written.push(Object.fromEntries(some));
  });
  return {
    uses,
    written,
    setDown: (is: boolean): void => {
      isDown = is;
    },
  };
}

test("KeyUses writes a minute after the first use, all at once, and then again", () => {
  const { uses, written } = start();
  uses.note("a", 1);
  jest.advanceTimersByTime(MINUTE - 1);
  uses.note("a", 2);
  uses.note("b", 3);
  expect(written).toEqual([]);
  jest.advanceTimersByTime(1);
  expect(written).toEqual([{ a: 2, b: 3 }]);
  uses.note("a", 4);
  jest.advanceTimersByTime(MINUTE);
  expect(written).toEqual([{ a: 2, b: 3 }, { a: 4 }]);
});

test("KeyUses keeps what it could not write for the next time, of each key the latest", async () => {
  const { uses, written, setDown } = start();
  setDown(true);
  uses.note("a", 1);
  uses.note("b", 1);
  const failing = uses.flush();
  uses.note("a", 2);
  await failing;
  expect(uses.shown({ id: "b", name: "b", createdAt: 0 }).lastUsedAt).toBe(1);
  setDown(false);
  jest.advanceTimersByTime(MINUTE);
  expect(written).toEqual([{ a: 2, b: 1 }]);
});
