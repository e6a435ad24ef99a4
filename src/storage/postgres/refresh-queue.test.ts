import { expect, test } from "bun:test";
import { RefreshQueue } from "./refresh-queue.ts";

test("calls during a refresh share the next one, which starts when that refresh has ended", async () => {
  const refreshes: PromiseWithResolvers<void>[] = [];
  const queue = new RefreshQueue(10_000, () => {
    const refresh = Promise.withResolvers<void>();
    refreshes.push(refresh);
    return refresh.promise;
  });
  const first = queue.next();
  while (refreshes.length === 0) await new Promise(setImmediate);
  const later = Promise.all([queue.next(), queue.next()]);
  for (let turn = 0; turn < 3; turn++) await new Promise(setImmediate);
  expect(refreshes.length).toBe(1);
  refreshes[0]?.resolve();
  await first;
  while (refreshes.length === 1) await new Promise(setImmediate);
  refreshes[1]?.resolve();
  await later;
  expect(refreshes.length).toBe(2);
});
