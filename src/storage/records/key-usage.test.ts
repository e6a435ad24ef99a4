import { afterEach, beforeEach, expect, jest, test } from "bun:test";
import { KeyUsage } from "./key-usage.ts";

const MINUTE = 60_000;

beforeEach(() => {
  jest.useFakeTimers();
});
afterEach(() => {
  jest.useRealTimers();
});

/** Returns a KeyUsage and the uses that it has written while the store is reachable. */
function start() {
  const written: Record<string, number>[] = [];
  let isDown = false;
  const uses = new KeyUsage(async (some) => {
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

test("KeyUsage writes all uses one minute after the first use", () => {
  const { uses, written } = start();
  uses.record("a", 1);
  jest.advanceTimersByTime(MINUTE - 1);
  uses.record("a", 2);
  uses.record("b", 3);
  expect(written).toEqual([]);
  jest.advanceTimersByTime(1);
  expect(written).toEqual([{ a: 2, b: 3 }]);
  uses.record("a", 4);
  jest.advanceTimersByTime(MINUTE);
  expect(written).toEqual([{ a: 2, b: 3 }, { a: 4 }]);
});

test("KeyUsage writes nothing if no key was used", async () => {
  const { uses, written } = start();
  await uses.flush();
  expect(written).toEqual([]);
});

test("KeyUsage retries failed writes with the latest use of each key", async () => {
  const { uses, written, setDown } = start();
  setDown(true);
  uses.record("a", 1);
  uses.record("b", 1);
  const failing = uses.flush();
  uses.record("a", 2);
  await failing;
  expect(uses.withLatest({ id: "b", name: "b", scope: "write", createdAt: 0 }).lastUsedAt).toBe(1);
  setDown(false);
  jest.advanceTimersByTime(MINUTE);
  expect(written).toEqual([{ a: 2, b: 1 }]);
});
