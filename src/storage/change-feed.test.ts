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

/** Returns the sequence numbers that a subscriber receives until its stream ends. */
async function read(feed: ChangeFeed, after: number, signal: AbortSignal): Promise<number[]> {
  const numbers: number[] = [];
  for await (const { position } of feed.after({ epoch: "e", sequence: after }, signal))
    numbers.push(position.sequence);
  return numbers;
}

/** Returns the number of live objects after a garbage collection. */
function objects(): number {
  Bun.gc(true);
  return heapStats().objectCount;
}

test.each([
  [-1, []],
  [2, []],
  [3, [4, 5, 6]],
  [5, [6]],
  [6, []],
  [7, []],
  [Number.POSITIVE_INFINITY, []],
])("ChangeFeed with the events 4 to 6 sends the stored events after position %d", async (after, numbers) => {
  const feed = new ChangeFeed(3, START);
  publish(feed, 1, 6);
  const subscriber = read(feed, after, new AbortController().signal);
  await new Promise(setImmediate);
  feed.end();
  expect(await subscriber).toEqual(numbers);
});

test("ChangeFeed reports whether it has subscribers", async () => {
  const feed = new ChangeFeed(10, START);
  const [one, other] = [new AbortController(), new AbortController()];
  expect(feed.hasSubscribers).toBe(false);
  const subscribers = [read(feed, 0, one.signal), read(feed, 0, other.signal)];
  expect(feed.hasSubscribers).toBe(true);
  one.abort();
  await subscribers[0];
  expect(feed.hasSubscribers).toBe(true);
  other.abort();
  await subscribers[1];
  expect(feed.hasSubscribers).toBe(false);
});

test("ChangeFeed leaks nothing over 20,000 events of one stream", async () => {
  const feed = new ChangeFeed(100, START);
  const controller = new AbortController();
  const events = feed.after(START, controller.signal);
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

test("ChangeFeed leaks nothing when idle subscribers connect and disconnect", async () => {
  const feed = new ChangeFeed(100, START);
  publish(feed, 1, 1);
  const { signal } = new AbortController();
  const connectAndDisconnect = async (times: number): Promise<void> => {
    for (let time = 0; time < times; time++) {
      const controller = new AbortController();
      const waiting = read(feed, 1, controller.signal);
      controller.abort();
      await waiting;
      for await (const _event of feed.after(START, signal)) break;
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
  for (let n = 1; n <= 4; n++) await fast.next();
  expect(feed.lag).toBe(0);
  await slow.next();
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
])(
  "ChangeFeed with events of several epochs sends these after %s-%d: %s",
  async (epoch, sequence, expected) => {
    const feed = new ChangeFeed(4, START);
    publish(feed, 1, 3);
    for (const n of [4, 5]) feed.publish(eventAt(n, "f"));
    feed.publish(eventAt(6, "g"));
    expect(feed.position).toEqual({ epoch: "g", sequence: 6 });
    const received: string[] = [];
    const controller = new AbortController();
    const reading = (async () => {
      for await (const { position } of feed.after({ epoch, sequence }, controller.signal))
        received.push(formatPosition(position));
    })();
    await new Promise(setImmediate);
    feed.publish(eventAt(7, "g"));
    await new Promise(setImmediate);
    controller.abort();
    await reading;
    expect(received.join(" ")).toBe(expected);
  },
);
