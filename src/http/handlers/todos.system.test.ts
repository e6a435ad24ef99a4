import { expect, test } from "bun:test";
import { setTimeout as sleep } from "node:timers/promises";
import { readOn, startReading, storeOf } from "../../../test/long-list.ts";
import { startService } from "../../../test/service.ts";

/** The runtime closes other connections that are idle for 8 to 12 seconds. */
const IDLE_MS = 13_500;

test("a long list is complete although its client does not read for longer than the idle timeout", async () => {
  const count = 30_000;
  await using service = startService({ store: await storeOf(count) });
  const socket = await startReading(service.port);
  await sleep(IDLE_MS);
  const { json } = await readOn(socket);
  expect(JSON.parse(json)).toHaveLength(count);
});
