import { expect, test } from "bun:test";
import { callRoute } from "../../../test/call-route.ts";
import { as, basic, mint } from "../../../test/credentials.ts";
import { ANN, AS_ANN, cookieOf, startPrivate } from "../../../test/service.ts";
import { follow } from "../../../test/sse.ts";
import { keysWith } from "../../../test/store.ts";
import { until } from "../../../test/until.ts";
import { type Key, type KeyStore, type MintedKey, rotateKey } from "../../credential/key.ts";
import { ServiceError } from "../../error.ts";
import { openMemory } from "../../storage/memory/store.ts";
import { createService, type ServiceOptions } from "../service.ts";

const MINUTE = 60_000;

/** Starts a service in private mode that checks its subscribers every few milliseconds. `list` replaces that of its keys. */
function start(credentials: ServiceOptions["credentials"] = {}, list?: KeyStore["list"]) {
  const store = openMemory();
  const clock = { now: Date.now(), monotonic: 0 };
  let checks = 0;
  const countedList = () => {
    checks++;
    return list === undefined ? store.keys.list() : list();
  };
  const service = startPrivate(store, {
    now: () => clock.now,
    monotonicNow: () => clock.monotonic,
    credentials: { keys: keysWith({ list: countedList }, store.keys), ...credentials },
    limits: { heartbeatMs: 10 },
  });
  /** Waits until a check that starts after this call has ended. */
  const nextCheck = async (): Promise<void> => {
    const before = checks;
    await until(() => checks > before + 1, "a whole check");
  };
  return {
    ...service,
    clock,
    mint: (name: string, lifetime?: number) => mint(store.keys, name, { now: clock.now, lifetime }),
    subscribe: (authorization: string) => follow(service.url, as(authorization)),
    checks: () => checks,
    nextCheck,
  };
}

test.each<[what: string, act: (keys: KeyStore, id: string, clock: { now: number }) => unknown]>([
  ["is revoked", (keys, id) => keys.delete(id)],
  ["expires", (_keys, _id, clock) => Object.assign(clock, { now: clock.now + 2 * MINUTE })],
  ["is rotated without an overlap", (keys, id, clock) => rotateKey(keys, id, 0, clock.now)],
])("the event streams of an API key end when it %s, and other streams continue", async (_what, act) => {
  await using service = start();
  const phone = await service.mint("phone", MINUTE);
  const laptop = await service.mint("laptop");
  await using byBearer = await service.subscribe(`Bearer ${phone.token}`);
  await using byPassword = await service.subscribe(basic("anyone", phone.token));
  await using other = await service.subscribe(`Bearer ${laptop.token}`);
  await using user = await service.subscribe(AS_ANN);
  await service.nextCheck();
  await act(service.store.keys, phone.key.id, service.clock);
  await Promise.all([byBearer.rest(), byPassword.rest()]);
  await service.nextCheck();
  await service.store.insert("still followed");
  // A stream begins with its position.
  for (const stream of [other, user]) expect((await stream.take(2)).at(-1)?.type).toBe("created");
  expect(service.lines.map(({ message, fields }) => [message, fields])).toEqual(
    [1, 2].map(() => [
      "subscriber disconnected",
      { client: phone.key.name, key: phone.key.id, reason: "credential no longer valid" },
    ]),
  );
  expect(service.logText()).not.toContain(phone.token);
});

test("one query at a time covers the API keys of all subscribers", async () => {
  const answer = Promise.withResolvers<void>();
  const keys: MintedKey[] = [];
  await using service = start({}, async () => {
    await answer.promise;
    return keys.map(({ key }) => key);
  });
  keys.push(await service.mint("phone"));
  const subscribe = () => service.subscribe(`Bearer ${keys[0]?.token}`);
  const streams = await Promise.all(Array.from({ length: 20 }, subscribe));
  const reads = Promise.all(streams.map((stream) => stream.rest()));
  await until(() => streams.every((stream) => stream.comments() > 5), "heartbeats");
  expect(service.checks()).toBe(1);
  keys.pop();
  answer.resolve();
  await reads;
  // The answer to the first query may precede the deletion.
  expect(service.checks()).toBeLessThanOrEqual(2);
});

test("the event streams of a user end when the stored entry changes, also while the password is checked", async () => {
  const entries = new Map(["ann", "bob", "eve"].map((user) => [user, "hash"]));
  const checkUser = (user: string) => {
    if (user === "eve") entries.set("eve", "changed");
    return true;
  };
  await using service = start({ storedEntry: (_kind, user) => entries.get(user), checkUser });
  await using ann = await service.subscribe(AS_ANN);
  await using bob = await service.subscribe(basic("bob", "x"));
  await using eve = await service.subscribe(basic("eve", "x"));
  await eve.rest();
  entries.set("ann", "changed");
  await ann.rest();
  entries.delete("bob");
  await bob.rest();
  expect(service.lines.map(({ fields }) => fields.user)).toEqual(["eve", "ann", "bob"]);
});

test("a connection stays open for the Keep-Alive timeout after a revocation, but not in a shutdown", async () => {
  /** Returns the idle timeouts of the request until its stream ends. */
  const idleTimeouts = async (isClosed: boolean): Promise<number[]> => {
    let isRevoked = false;
    const service = createService({
      store: openMemory(),
      access: { privateMode: true },
      credentials: { lookupClient: () => ({ name: "ci", isRevoked: () => isRevoked }) },
      limits: { heartbeatMs: 10 },
    });
    const timeouts: number[] = [];
    const onTimeout = (seconds: number) => timeouts.push(seconds);
    const response = await callRoute(service, "/api/events", { ...as("Bearer x"), onTimeout });
    if (isClosed) service.close();
    else isRevoked = true;
    await response.text();
    service.close();
    return timeouts;
  };
  expect([await idleTimeouts(false), await idleTimeouts(true)]).toEqual([
    [120, 10],
    [120, 1],
  ]);
});

const broken = () => {
  throw new Error("broken");
};

test.each<[what: string, check: () => boolean, errors: number]>([
  ["says that the token is revoked", () => true, 0],
  ["throws", broken, 1],
])("the event stream of a client ends when its revocation check %s", async (_what, check, errors) => {
  let isRevoked = () => false;
  await using service = start({ lookupClient: () => ({ name: "ci", isRevoked: () => isRevoked() }) });
  await using stream = await service.subscribe("Bearer token");
  isRevoked = check;
  await stream.rest();
  expect(service.lines.filter(({ level }) => level === "error")).toHaveLength(errors);
});

test("while the API keys cannot be read, event streams continue for at most a minute", async () => {
  let isDown = false;
  let failures = 0;
  const keys: Key[] = [];
  await using service = start({}, () => {
    if (!isDown) return keys;
    failures++;
    throw new ServiceError("store_unavailable");
  });
  const { key, token } = await service.mint("phone");
  keys.push(key);
  await using stream = await service.subscribe(`Bearer ${token}`);
  isDown = true;
  await until(() => failures > 2, "failed checks");
  service.clock.monotonic += MINUTE / 2;
  const before = failures;
  await until(() => failures > before + 2, "further failed checks");
  expect(service.lines.filter(({ message }) => message === "subscriber disconnected")).toEqual([]);
  service.clock.monotonic += MINUTE / 2;
  await stream.rest();
  expect(service.lines.at(-1)?.fields.reason).toBe("API keys not readable");
});

test("the event stream of a signed-in browser ends when the stored entry of its user changes", async () => {
  let entry = "first";
  await using service = start({ storedEntry: () => entry });
  const session = cookieOf(await service.sendJson("POST", "/api/session", ANN));
  await using stream = await follow(service.url, session);
  await service.nextCheck();
  entry = "changed";
  await stream.rest();
  expect(service.lines.at(-1)?.fields.reason).toBe("credential no longer valid");
});
