import { expect, test } from "bun:test";
import { expectAll, here, readOn, serve } from "../../../test/event-streams.ts";
import { LONGEST_TITLE, startReading } from "../../../test/raw-http.ts";
import { follow } from "../../../test/sse.ts";
import { watch } from "../../../test/store.ts";
import { storesOfEachKind } from "../../../test/stores.ts";
import { until } from "../../../test/until.ts";
import { openMemory } from "../../storage/memory/store.ts";
import { listen } from "../listener/listen.ts";
import { createService } from "../service.ts";

const STALLED = 20;
const TODOS = 500;

test.each(storesOfEachKind())(
  "a subscriber that does not read uses little memory on %s and is disconnected, and other subscribers miss nothing",
  async (_kind, openStore) => {
    const opened = await openStore();
    const watched = watch(opened);
    await using service = serve(watched.store);
    await Promise.all(Array.from({ length: TODOS }, () => opened.insert(LONGEST_TITLE)));
    const ids = Array.from({ length: TODOS }, (_, index) => BigInt(index + 1));
    let last = (await opened.position()).sequence;
    await using healthy = await service.follow({ since: await here(opened) });
    /** Changes all to-dos a number of times, and reads the changes as a healthy subscriber. */
    const change = async (times: number): Promise<void> => {
      for (let turn = 0; turn < times; turn++) {
        await Promise.all(ids.map((id) => opened.setDone(id, turn % 2 === 0)));
        expectAll(await healthy.take(TODOS), last + 1, last + TODOS);
        last += TODOS;
      }
    };
    const residentMiB = (): number => {
      Bun.gc(true);
      return process.memoryUsage.rss() / 2 ** 20;
    };
    await change(20);
    const before = residentMiB();
    const from = await here(opened);
    const stalled = await Promise.all(
      Array.from({ length: STALLED }, () => startReading(service.port, `/api/events?since=${from}`)),
    );
    const behind = last;
    await change(100);
    // Each leaves about 25 MiB unread, 500 together. How much memory the collector retains varies.
    expect(residentMiB() - before).toBeLessThan(150);
    expect(watched.open()).toBe(STALLED + 1);
    for (const received of await Promise.all(stalled.map((socket) => readOn(socket)))) {
      expectAll(received, behind + 1, behind + received.length);
      expect(behind + received.length).toBeLessThan(last);
    }
    await until(() => watched.open() === 1, "the stalled subscribers are disconnected");
    await change(1);
  },
);

test("a subscriber that does not read delays neither the shutdown nor the streams of other subscribers", async () => {
  const store = openMemory();
  const service = createService({ store });
  const { url, stop } = listen(service, { host: "127.0.0.1", port: 0 });
  store.insert("x");
  const since = await here(store);
  const stalled = await startReading(Number(new URL(url).port), `/api/events?since=${since}`);
  await using resumed = await follow(url, { since });
  for (let n = 2; n <= 10_001; n += 100) {
    for (let more = 0; more < 100; more++) store.insert(LONGEST_TITLE);
    expectAll(await resumed.take(100), n, n + 99);
  }
  await using live = await follow(url);
  expect((await live.take(1)).map(({ type }) => type)).toEqual(["position"]);
  const stopped = stop();
  expect(await live.rest()).toEqual([]);
  expect(await resumed.rest()).toEqual([]);
  // The stalled subscriber is disconnected before the time at which requests are cut off and counted.
  expect(await stopped).toBe(0);
  stalled.destroy();
});
