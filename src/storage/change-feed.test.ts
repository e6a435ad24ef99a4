import { heapStats } from "bun:jsc";
import { expect, test } from "bun:test";
import { getEventListeners } from "node:events";
import { formatPosition, type Position, type TodoEvent } from "../todo.ts";
import { ChangeFeed } from "./change-feed.ts";

const START: Position = { epoch: "e", sequence: 0 };

const eventAt = (n: number, epoch = "e"): TodoEvent => ({
  type: "deleted",
  position: { epoch, sequence: n },
  id: 1n,
});

function publish(feed: ChangeFeed, first: number, last: number): void {
  for (let n = first; n <= last; n++) feed.publish(eventAt(n));
}

/** Returns the positions of the events after a position, up to the last one; at the end of the stream, those before. */
async function read(
  feed: ChangeFeed,
  after: Position,
  { signal } = new AbortController(),
): Promise<string[]> {
  const received: string[] = [];
  for await (const batch of feed.after(after, signal)) {
    received.push(...batch.map(({ position }) => formatPosition(position)));
    if (received.at(-1) === formatPosition(feed.position)) break;
  }
  return received;
}

function objects(): number {
  Bun.gc(true);
  return heapStats().objectCount;
}

test.each([
  [-1, ""],
  [2, ""],
  [3, "e-4 e-5 e-6 e-7"],
  [5, "e-6 e-7"],
  [6, "e-7"],
  [7, ""],
  [Number.POSITIVE_INFINITY, ""],
])("ChangeFeed with events 4 to 6 sends these and the next after %d: %s", async (sequence, expected) => {
  const feed = new ChangeFeed(3, START);
  publish(feed, 1, 6);
  const received = read(feed, { epoch: "e", sequence });
  publish(feed, 7, 7);
  expect((await received).join(" ")).toBe(expected);
});

test("ChangeFeed sends at most 64 events at once", async () => {
  const feed = new ChangeFeed(100, START);
  publish(feed, 1, 70);
  const events = feed.after(START, new AbortController().signal);
  for (const length of [64, 6]) expect((await events.next()).value).toHaveLength(length);
  await events.return();
});

test("ChangeFeed reports whether it has subscribers", async () => {
  const feed = new ChangeFeed(10, START);
  const [one, other] = [new AbortController(), new AbortController()];
  expect(feed.hasSubscribers).toBe(false);
  const subscribers = [read(feed, START, one), read(feed, START, other)];
  expect(feed.hasSubscribers).toBe(true);
  one.abort();
  await subscribers[0];
  expect(feed.hasSubscribers).toBe(true);
  other.abort();
  await subscribers[1];
  expect(feed.hasSubscribers).toBe(false);
});

test("ChangeFeed leaks nothing over 20,000 batches of one stream", async () => {
  const feed = new ChangeFeed(100, START);
  const controller = new AbortController();
  const events = feed.after(START, controller.signal);
  const follow = async (batches: number): Promise<void> => {
    for (let batch = 0; batch < batches; batch++) {
      const { sequence } = feed.position;
      publish(feed, sequence + 1, sequence + 64);
      await events.next();
    }
  };
  await follow(1000);
  const before = objects();
  await follow(20_000);
  expect(objects() - before).toBeLessThan(1000);
  expect(getEventListeners(controller.signal, "abort")).toHaveLength(1);
});

test("ChangeFeed leaks nothing when idle subscribers connect and disconnect", async () => {
  const feed = new ChangeFeed(100, START);
  publish(feed, 1, 100);
  const { signal } = new AbortController();
  const connectAndDisconnect = async (times: number): Promise<void> => {
    for (let time = 0; time < times; time++) {
      const controller = new AbortController();
      const waiting = read(feed, feed.position, controller);
      controller.abort();
      await waiting;
      for await (const _batch of feed.after(START, signal)) break;
    }
  };
  await connectAndDisconnect(1000);
  const before = objects();
  await connectAndDisconnect(20_000);
  expect(objects() - before).toBeLessThan(1000);
  expect(getEventListeners(signal, "abort")).toEqual([]);
});

test("ChangeFeed reports how far its slowest subscriber lags", async () => {
  const feed = new ChangeFeed(10, START);
  expect(feed.lag).toBe(0);
  const { signal } = new AbortController();
  const [slow, fast] = [feed.after(START, signal), feed.after(START, signal)];
  publish(feed, 1, 4);
  await Promise.all([slow.next(), fast.next()]);
  expect(feed.lag).toBe(0);
  publish(feed, 5, 7);
  await fast.next();
  expect(feed.lag).toBe(3);
  await slow.return();
  expect(feed.lag).toBe(0);
  await fast.return();
});

test.each([
  ["e", 1, ""],
  ["e", 2, "e-3 f-4 f-5 g-6 g-7"],
  ["e", 3, "f-4 f-5 g-6 g-7"],
  ["e", 4, ""],
  ["f", 4, "f-5 g-6 g-7"],
  ["f", 5, "g-6 g-7"],
  ["f", 6, ""],
  ["g", 6, "g-7"],
  ["g", 7, ""],
  ["h", 6, ""],
])("ChangeFeed with several epochs sends these events after %s-%d: %s", async (epoch, sequence, expected) => {
  const feed = new ChangeFeed(4, START);
  publish(feed, 1, 3);
  for (const n of [4, 5]) feed.publish(eventAt(n, "f"));
  feed.publish(eventAt(6, "g"));
  expect(feed.position).toEqual({ epoch: "g", sequence: 6 });
  const received = read(feed, { epoch, sequence });
  feed.publish(eventAt(7, "g"));
  expect((await received).join(" ")).toBe(expected);
});
