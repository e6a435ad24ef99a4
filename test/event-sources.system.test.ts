/** EventSource libraries receive each event once, and nothing for a heartbeat. */
import { describe, expect, test } from "bun:test";
import { copyFile } from "node:fs/promises";
import { join } from "node:path";
import { startBalancer } from "../deploy/topology.ts";
import { openMemory } from "../src/storage/memory/store.ts";
import { run } from "./command.ts";
import { installPackages } from "./npm-install.ts";
import { startService } from "./service.ts";
import { skipFor } from "./skip.ts";
import { follow } from "./sse.ts";
import { whyMissing } from "./tools.ts";
import { until } from "./until.ts";

const LIBRARIES = {
  eventsource: "4.1.0",
  "eventsource-client": "1.2.0",
  "event-source-polyfill": "1.0.31",
  "@microsoft/fetch-event-source": "2.0.1",
};

const packages = await installPackages(
  ...Object.entries(LIBRARIES).map(([name, version]) => `${name}@${version}`),
);
const client = join(packages.folder ?? "", "client.mjs");
if (packages.folder !== undefined) await copyFile(`${import.meta.dir}/event-source-client.mjs`, client);

const ways = [
  { way: "directly", whyNot: packages.whyMissing },
  { way: "through nginx", whyNot: packages.whyMissing ?? whyMissing("nginx") },
];

describe.each(ways)("$way", ({ way, whyNot }) => {
  test.skipIf(skipFor(whyNot)).each(Object.keys(LIBRARIES))("%s receives only events", async (library) => {
    await using stack = new AsyncDisposableStack();
    const store = openMemory();
    const { url } = stack.use(startService({ store, limits: { heartbeatMs: 20 } }));
    const base = way === "directly" ? url : await startBalancer(stack, [url, url, url]);
    const reader = stack.use(run(["node", client, library, `${base}/api/events`]));
    const received = () =>
      reader
        .stdout()
        .match(/.+/g)
        ?.map((line) => JSON.parse(line)) ?? [];
    await until(() => received().length > 0, `the first event, but the client said: ${reader.stderr()}`);
    const heartbeats = stack.use(await follow(url));
    const next = heartbeats.take(2);
    await until(() => heartbeats.comments() > 10, "there were heartbeats");
    await store.insert("after heartbeats");
    await next;
    await until(() => received().length > 1, "the event after the heartbeats");
    expect(received()).toEqual([
      { type: "position", data: "{}" },
      { type: "created", data: expect.stringContaining("after heartbeats") },
    ]);
  });
});
