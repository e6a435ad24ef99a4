import { describe, expect, test } from "bun:test";
import { Deck, Random } from "../conformance/random.ts";
import { TodoApi } from "../src/sdk/client.ts";
import { openMemory } from "../src/storage/memory/store.ts";
import { startFaultyProxy } from "./faulty-proxy.ts";
import { BEFORE_FIRST_ID, FAULTS, type Places, type Storm } from "./sdk-suite.ts";
import { startService } from "./service.ts";

const TOKEN = "t0ken";
const WRITERS = 20;
const EACH = 3;
/** The faulty proxy closes all connections after each of these numbers of requests. */
const CUT_AFTER = 30;

export interface Runtime {
  readonly runChecks: (places: Places) => Promise<Record<string, string>>;
  readonly storm: (baseUrl: string, writers: number, each: number) => Promise<Storm>;
}

/** Returns a runtime in another program. `call` calls a function there, and returns its result as JSON. */
export const remote = (
  call: (name: keyof Runtime, args: readonly unknown[]) => Promise<string>,
): Runtime => ({
  runChecks: async (...args) => JSON.parse(await call("runChecks", args)),
  storm: async (...args) => JSON.parse(await call("storm", args)),
});

export function testClient(name: string, runtime: Runtime): void {
  describe(`the client in ${name}`, () => {
    test.concurrent("passes all checks of sdk-suite.ts", async () => {
      await using service = start();
      await using proxies = new AsyncDisposableStack();
      const urls = FAULTS.map(async (fault) => {
        const struck = new Map<string, number>();
        const proxy = await startFaultyProxy(service.port, (line) => {
          const kind = line.replace(/\?.*/, "");
          const count = struck.get(kind) ?? 0;
          struck.set(kind, count + 1);
          // Chromium repeats a request that got no response. The second DELETE would then get 404.
          const inTurns = kind.startsWith("DELETE ") ? count % 4 < 2 : count % 2 === 0;
          return inTurns || kind.endsWith("/whoami") ? fault : "pass";
        });
        proxies.use(proxy);
        return [fault, proxy.url] as const;
      });
      const through: Readonly<Record<string, string>> = Object.fromEntries(await Promise.all(urls));
      const places: Places = { direct: service.url, through, token: TOKEN };
      const outcomes = await runtime.runChecks(places);
      expect(Object.keys(outcomes).length).toBeGreaterThan(5);
      expect(outcomes).toEqual(Object.fromEntries(Object.keys(outcomes).map((name) => [name, "holds"])));
    });

    test.concurrent("loses and duplicates nothing on an unreliable network", async () => {
      const seed = Number(process.env.TODO_TEST_SEED ?? Math.floor(Math.random() * 2 ** 31));
      const random = new Random(seed);
      await using service = start();
      const faults = new Deck(FAULTS, random);
      let requests = 0;
      await using proxy = await startFaultyProxy(service.port, () => {
        if (++requests % CUT_AFTER === 0) setImmediate(() => proxy.cut());
        return random.chance(0.4) ? (faults.deal(1)[0] ?? "pass") : "pass";
      });
      const weather = await runtime.storm(proxy.url, WRITERS, EACH);
      await proxy.settled();
      const struck = proxy.struck();
      process.stderr.write(`seed ${seed}: ${JSON.stringify(struck)}, ${weather.connections} connections\n`);

      expect(weather.failures).toEqual([]);
      expect(Object.keys(struck).toSorted()).toEqual([...FAULTS].toSorted());
      const { todos } = await new TodoApi({ baseUrl: service.url }).list();
      const there = todos.map(({ id, title, done }) => `${id} ${title} ${done}`);
      expect(there.toSorted()).toEqual(weather.kept.toSorted());
      expect(there).toHaveLength(WRITERS * EACH * (2 / 3) + 1);
      expect(weather.followed.toSorted()).toEqual(there.toSorted());
      const counts = weather.positions.map((position) => Number(/\d+$/.exec(position)?.[0]));
      expect(counts).toEqual(counts.map((_, index) => index + 1));
      expect(weather.connections).toBeGreaterThan(1);
    });
  });
}

const start = () =>
  startService({
    store: openMemory({ lastId: BEFORE_FIRST_ID }),
    credentials: { lookupClient: (token) => (token === TOKEN ? { name: "alice" } : undefined) },
    network: { onLoopback: true },
  });
