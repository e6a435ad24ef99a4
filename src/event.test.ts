import { heapStats } from "bun:jsc";
import { expect, test } from "bun:test";
import { getEventListeners } from "node:events";
import { Feed } from "./event.ts";
import type { TodoEvent } from "./todo.ts";

const eventAt = (n: number): TodoEvent => ({ type: "deleted", position: { epoch: "e", n }, id: 1n });

function publish(feed: Feed, first: number, last: number): void {
  for (let n = first; n <= last; n++) feed.publish(eventAt(n));
}

/** The positions that a reader gets until it ends. */
async function read(feed: Feed, after: number, signal: AbortSignal): Promise<number[]> {
  const numbers: number[] = [];
  for await (const { position } of feed.after(after, signal)) numbers.push(position.n);
  return numbers;
}

/** How many objects there are after a collection. */
function objects(): number {
  Bun.gc(true);
  return heapStats().objectCount;
}

test("Feed gives each reader what is kept and what comes, until it goes away", async () => {
  const feed = new Feed(10, 0);
  const controller = new AbortController();
  publish(feed, 1, 5);
  const readers = [0, 3, 5].map((after) => read(feed, after, controller.signal));
  for (const n of [6, 7, 8]) {
    publish(feed, n, n);
    await new Promise(setImmediate);
  }
  controller.abort();
  expect(await Promise.all(readers)).toEqual([
    [1, 2, 3, 4, 5, 6, 7, 8],
    [4, 5, 6, 7, 8],
    [6, 7, 8],
  ]);
  expect(await read(feed, 0, controller.signal)).toEqual([]);
});

test.each([
  [-1, []],
  [2, []],
  [3, [4, 5, 6]],
  [5, [6]],
  [6, []],
  [7, []],
  [Number.POSITIVE_INFINITY, []],
])("Feed that keeps 4 to 6 gives those after %d that are known", async (after, numbers) => {
  const feed = new Feed(3, 0);
  publish(feed, 1, 6);
  const reader = read(feed, after, new AbortController().signal);
  await new Promise(setImmediate);
  feed.end();
  expect(await reader).toEqual(numbers);
});

test("Feed lets go of a reader that falls behind, and of no other", async () => {
  const feed = new Feed(3, 0);
  const { signal } = new AbortController();
  const [slow, quick] = [feed.after(0, signal), feed.after(0, signal)];
  publish(feed, 1, 2);
  expect((await slow.next()).value?.position.n).toBe(1);
  for (const n of [1, 2]) expect((await quick.next()).value?.position.n).toBe(n);
  publish(feed, 3, 5);
  expect((await slow.next()).done).toBe(true);
  for (const n of [3, 4, 5]) expect((await quick.next()).value?.position.n).toBe(n);
});

test("Feed knows whether anybody reads", async () => {
  const feed = new Feed(10, 0);
  const [one, other] = [new AbortController(), new AbortController()];
  expect(feed.isRead).toBe(false);
  const readers = [read(feed, 0, one.signal), read(feed, 0, other.signal)];
  expect(feed.isRead).toBe(true);
  one.abort();
  await readers[0];
  expect(feed.isRead).toBe(true);
  other.abort();
  await readers[1];
  expect(feed.isRead).toBe(false);
});

test("Feed ends every reader when it ends, whatever they are at", async () => {
  const feed = new Feed(10, 0);
  const { signal } = new AbortController();
  publish(feed, 1, 3);
  const reading = feed.after(0, signal);
  await reading.next();
  const waiting = Promise.all([3, 3, 2].map((after) => read(feed, after, signal)));
  await new Promise(setImmediate);
  feed.end();
  expect(await waiting).toEqual([[], [], [3]]);
  expect((await reading.next()).done).toBe(true);
  expect(await read(feed, 3, signal)).toEqual([]);
});

test("Feed gathers nothing over 20,000 events of one stream", async () => {
  const feed = new Feed(100, 0);
  const controller = new AbortController();
  const events = feed.after(0, controller.signal);
  const follow = async (first: number, last: number): Promise<void> => {
    for (let n = first; n <= last; n++) {
      const next = events.next();
      publish(feed, n, n);
      await next;
    }
  };
  await follow(1, 1000);
  const before = objects();
  await follow(1001, 21_000);
  expect(objects() - before).toBeLessThan(1000);
  expect(getEventListeners(controller.signal, "abort")).toHaveLength(1);
});

test("Feed gathers nothing of readers that come and go while nothing happens", async () => {
  const feed = new Feed(100, 0);
  publish(feed, 1, 1);
  const { signal } = new AbortController();
  const comeAndGo = async (times: number): Promise<void> => {
    for (let time = 0; time < times; time++) {
      const controller = new AbortController();
      const waiting = read(feed, 1, controller.signal);
      controller.abort();
      await waiting;
      for await (const _event of feed.after(0, signal)) break;
    }
  };
  await comeAndGo(1000);
  const before = objects();
  await comeAndGo(20_000);
  expect(objects() - before).toBeLessThan(1000);
  expect(getEventListeners(signal, "abort")).toEqual([]);
});
