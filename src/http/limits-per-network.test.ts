import { expect, test } from "bun:test";
import { startService, type TestService } from "../../test/service.ts";
import { type EventStream, follow } from "../../test/sse.ts";
import { storeWith, watch } from "../../test/store.ts";
import { until } from "../../test/until.ts";
import { openMemory } from "../storage/memory/store.ts";
import type { ServiceOptions } from "./service.ts";

type Sent = Readonly<Record<string, string>>;

const from = (address: string): Sent => ({ "X-Forwarded-For": address });

function start(options: Partial<ServiceOptions> = {}) {
  const service = startService({
    ...options,
    network: { trustedProxies: ["127.0.0.1"], ...options.network },
    limits: { maxSubscribers: 8, ...options.limits },
  });
  const streams: EventStream[] = [];
  return {
    ...service,
    subscribe: async (headers: Sent = {}): Promise<EventStream> => {
      const stream = await follow(service.url, { headers });
      streams.push(stream);
      return stream;
    },
    [Symbol.asyncDispose]: async () => {
      await Promise.all(streams.map((stream) => stream.close()));
      await service[Symbol.asyncDispose]();
    },
  };
}

const OVERLOADED = "503 overloaded";

const outcome = (service: TestService, headers: Sent = {}) => service.outcome("GET /api/events", { headers });

test("a network, such as an IPv6 /64, may open a quarter of the event streams, and others can open the rest", async () => {
  await using service = start();
  const network = ["2001:db8::1", "2001:db8::ffff:1"];
  for (const address of network) await service.subscribe(from(address));
  for (const address of network) expect(await outcome(service, from(address))).toBe(OVERLOADED);
  expect(await outcome(service, from("2001:db8:0:1::1"))).toBe("200");
  expect(await outcome(service)).toBe("200");
});

test.each([
  [
    { maxSubscribers: 2 },
    "The server has reached its limit of concurrent requests.",
    ["too many subscribers", { subscribers: 2 }],
  ],
  [
    { maxSubscribersPerNetwork: 2 },
    "Your network has as many event streams as one network may have (2). Close one, or try later.",
    ["too many subscribers from one network", { network: "2001:db8:0:0::/64" }],
  ],
] as const)("subscribers above %j are rejected and logged", async (limits, detail, [message, fields]) => {
  const watched = watch(openMemory());
  await using service = start({ store: watched.store, limits });
  const [first, headers] = [from("2001:db8::1"), from("2001:db8::2")];
  await service.subscribe("maxSubscribers" in limits ? {} : first);
  for (let round = 0; round < 3; round++) {
    const stream = await service.subscribe(headers);
    const rejected = await service.send("GET", "/api/events", { headers });
    expect([rejected.status, rejected.headers.get("retry-after")]).toEqual([503, "5"]);
    expect(await rejected.json()).toMatchObject({ code: "overloaded", detail });
    await stream.close();
    await until(() => watched.open() === 1, "the stream ends");
  }
  service.close();
  const line = { level: "warn", message } as const;
  expect(service.lines).toEqual([
    { ...line, fields },
    { ...line, fields: { ...fields, times: 2 } },
  ]);
});

test("all networks together cannot exceed the limit for all subscribers, and each may open one stream", async () => {
  await using service = start({ limits: { maxSubscribers: 3 } });
  for (const last of [5, 6, 7]) await service.subscribe(from(`203.0.113.${last}`));
  for (const last of [7, 8]) expect(await outcome(service, from(`203.0.113.${last}`))).toBe(OVERLOADED);
});

test("concurrent requests of a network count together", async () => {
  const memory = openMemory();
  const { promise: answered, resolve: answer } = Promise.withResolvers<void>();
  let waiting = 0;
  const position = async () => {
    waiting++;
    await answered;
    return memory.position();
  };
  await using service = start({ store: storeWith({ position }, memory), limits: { maxSubscribers: 40 } });
  const responses = Array.from({ length: 20 }, () =>
    fetch(`${service.url}/api/events`, { headers: from("203.0.113.5") }),
  );
  await until(() => waiting === 20, "all requests wait for the store");
  answer();
  const statuses = (await Promise.all(responses)).map(({ status }) => status);
  expect(statuses.filter((status) => status === 200)).toHaveLength(10);
  expect(statuses.filter((status) => status === 503)).toHaveLength(10);
  for (const response of await Promise.all(responses)) await response.body?.cancel();
});

test.each<[what: string, headers: Sent, trustedProxies: string[]]>([
  ["loopback", {}, []],
  ["loopback, which is also a trusted proxy", {}, ["127.0.0.1"]],
  ["an unlisted proxy on loopback", from("203.0.113.5"), []],
])("%s may open all event streams", async (_what, headers, trustedProxies) => {
  await using service = start({ network: { trustedProxies } });
  for (let n = 0; n < 8; n++) await service.subscribe(headers);
  expect(await outcome(service, headers)).toBe(OVERLOADED);
});

test.each<[what: string, headers: Sent]>([
  ["reports a client on loopback", from("127.0.0.1")],
  ["sends Forwarded", { Forwarded: "for=203.0.113.5" }],
  ["sends both kinds of headers", { Forwarded: "for=203.0.113.5", ...from("203.0.113.6") }],
])("a trusted proxy on loopback that %s has no more streams than one network", async (_what, headers) => {
  await using service = start();
  for (let n = 0; n < 2; n++) await service.subscribe(headers);
  expect(await outcome(service, headers)).toBe(OVERLOADED);
  expect(await outcome(service, from("203.0.113.7"))).toBe("200");
});

test("HEAD counts as a stream, and as one of its network, only until its response", async () => {
  await using service = start({ limits: { maxSubscribers: 1, maxSubscribersPerNetwork: 1 } });
  const headers = from("203.0.113.5");
  const head = () => service.outcome("HEAD /api/events", { headers });
  for (let times = 1; times <= 5; times++)
    await until(async () => (await head()) === "200", "the last stream has ended");
});

test("the log recommends TODO_TRUSTED_PROXY once per address if a request with an unlisted proxy's headers is rejected", async () => {
  await using service = start({ network: { trustedProxies: [] }, limits: { maxSubscribers: 1 } });
  const hints = () => service.lines.filter(({ message }) => message.includes("TODO_TRUSTED_PROXY"));
  await service.subscribe(from("203.0.113.5"));
  expect(await outcome(service)).toBe(OVERLOADED);
  expect(hints()).toEqual([]);
  for (let n = 0; n < 5; n++) expect(await outcome(service, from("203.0.113.5"))).toBe(OVERLOADED);
  expect(hints()).toMatchObject([{ level: "warn", fields: { address: "127.0.0.1" } }]);
  service.close();
  expect(hints()).toMatchObject([{}, { level: "warn", fields: { address: "127.0.0.1", times: 4 } }]);
});
