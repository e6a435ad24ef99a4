import { afterEach, expect, jest, test } from "bun:test";
import { failureOf } from "../../test/store-contract.ts";
import { WriteQueue } from "./write-queue.ts";

afterEach(() => void jest.useRealTimers());

test("a write that is not stored within 15 seconds fails, and so does one that waits for it", async () => {
  const batches: string[][] = [];
  const hung = Promise.withResolvers<void>();
  const queue = new WriteQueue(
    () => [] as string[],
    (batch) => {
      batches.push(batch);
      return hung.promise;
    },
  );
  const write = (name: string) =>
    queue.add((batch) => {
      batch.push(name);
      return () => name;
    });
  jest.useFakeTimers({ now: Date.now() });
  const first = failureOf(() => write("first"));
  while (batches.length === 0) await new Promise(setImmediate);
  const waiting = failureOf(() => write("waiting"));
  jest.advanceTimersByTime(15_000);
  expect([await first, await waiting]).toEqual(["store_unavailable", "store_unavailable"]);
  jest.useRealTimers();
  const last = write("last");
  hung.resolve();
  expect(await last).toBe("last");
  expect(batches).toEqual([["first"], ["last"]]);
});

test("a write that does not fit its batch fails 15 seconds after it was added", async () => {
  const hung = Promise.withResolvers<void>();
  const batches: string[][] = [];
  const queue = new WriteQueue(
    async () => {
      await begun.promise;
      return [] as string[];
    },
    async (batch) => {
      batches.push(batch);
      await hung.promise;
    },
  );
  const begun = Promise.withResolvers<void>();
  const write = (name: string) =>
    queue.add((batch) => {
      if (batch.length > 0) return undefined;
      batch.push(name);
      return () => name;
    });
  jest.useFakeTimers({ now: Date.now() });
  const failures = Promise.all([failureOf(() => write("first")), failureOf(() => write("second"))]);
  jest.advanceTimersByTime(10_000);
  begun.resolve();
  while (batches.length === 0) await new Promise(setImmediate);
  jest.advanceTimersByTime(5_000);
  expect(await failures).toEqual(["store_unavailable", "store_unavailable"]);
  jest.useRealTimers();
  hung.resolve();
  await queue.whenIdle();
  expect(batches).toEqual([["first"]]);
});

test("writes of consecutive turns of the event loop share a batch, up to eight turns", async () => {
  const batches: number[][] = [];
  const queue = new WriteQueue(
    () => [] as number[],
    async (batch) => {
      batches.push(batch);
    },
  );
  const writes: Promise<void>[] = [];
  for (let turn = 1; batches.length < 2; turn++) {
    writes.push(
      queue.add((batch) => {
        batch.push(turn);
        return () => {};
      }),
    );
    await new Promise(setImmediate);
  }
  await Promise.all(writes);
  expect(batches[0]).toEqual([1, 2, 3, 4, 5, 6, 7, 8]);
});
