import { expect, test } from "bun:test";
import { hurry } from "../../../test/hurry.ts";
import { ServiceError } from "../../error.ts";
import { createLoginThrottle } from "./login-throttle.ts";

const NETWORK = "10.0.0.5";
const USER = "admin";

const MINUTE = 60_000;

const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

function throttled(maxFailures: number) {
  const time = { ms: 0 };
  const throttle = createLoginThrottle(maxFailures, () => time.ms);
  const tryAs = async (user: string, isCorrect = false): Promise<boolean | string> => {
    try {
      return await throttle.attempt(NETWORK, user, async () => isCorrect);
    } catch (error) {
      if (error instanceof ServiceError) return error.code;
      throw error;
    }
  };
  return { throttle, tryAs, time };
}

test.each<[others: number, outcome: boolean | string]>([
  [9_999, "too_many_failures"],
  [10_000, true],
])("createLoginThrottle tracks 10,000 users: after %d others, the first gets %p", async (others, outcome) => {
  const { tryAs } = throttled(1);
  expect(await tryAs(USER)).toBe(false);
  for (let user = 0; user < others; user++) await tryAs(`user ${user}`);
  expect(await tryAs(USER, true)).toBe(outcome);
});

test("createLoginThrottle rejects every attempt until 15 minutes after the start of the last check", async () => {
  const { throttle, tryAs, time } = throttled(3);
  for (let attempt = 0; attempt < 3; attempt++) {
    expect(await tryAs(USER)).toBe(false);
    time.ms += 10 * MINUTE;
  }
  // A rejected attempt does not restart the time.
  for (const [later, seconds] of [
    [0, "300"],
    [5 * MINUTE - 1, "1"],
  ] as const) {
    time.ms += later;
    const rejected = throttle.attempt(NETWORK, USER, () => Promise.reject(new Error("checked")));
    const headers = { "Retry-After": seconds };
    expect(await rejected.catch((error: unknown) => error)).toMatchObject({
      code: "too_many_failures",
      headers,
    });
  }
  time.ms += 1;
  for (let attempt = 0; attempt < 3; attempt++) expect(await tryAs(USER)).toBe(false);
  expect(await tryAs(USER, true)).toBe("too_many_failures");
});

test("createLoginThrottle forgets the failures after a success", async () => {
  const { tryAs } = throttled(3);
  for (let round = 0; round < 5; round++)
    for (const isCorrect of [false, false, true]) expect(await tryAs(USER, isCorrect)).toBe(isCorrect);
});

test("createLoginThrottle evicts the least recently used count first", async () => {
  const { tryAs } = throttled(3);
  expect(await tryAs(USER)).toBe(false);
  for (let user = 0; user < 9_999; user++) await tryAs(`user ${user}`);
  expect(await tryAs(USER)).toBe(false);
  await tryAs("one more");
  expect(await tryAs(USER)).toBe(false);
  expect(await tryAs(USER, true)).toBe("too_many_failures");
});

test.each([
  ["10.0.0.11", "x"],
  ["10.0.0.6", "1x"],
  ["10.0.0.1", "1X"],
])("createLoginThrottle counts each pair of network and user separately: %s, %s", async (network, user) => {
  const throttle = createLoginThrottle(1, () => 0);
  expect(await throttle.attempt("10.0.0.1", "1x", async () => false)).toBe(false);
  expect(await throttle.attempt(network, user, async () => true)).toBe(true);
});

test("createLoginThrottle keeps rejecting a user at the limit while many other names are tried, also after the limit was reset", async () => {
  const { tryAs, time } = throttled(2);
  for (const round of ["first", "second"]) {
    for (let attempt = 0; attempt < 2; attempt++) expect(await tryAs(USER)).toBe(false);
    for (let user = 0; user < 10_100; user++) await tryAs(`${round} ${user}`);
    expect(await tryAs(USER, true)).toBe("too_many_failures");
    time.ms += 15 * MINUTE;
  }
});

test("createLoginThrottle stores a short digest of a long name", async () => {
  const { tryAs } = throttled(1);
  const heap = (): number => {
    Bun.gc(true);
    return process.memoryUsage().heapUsed;
  };
  const before = heap();
  for (let user = 0; user < 6_000; user++) await tryAs(`${user} ${"x".repeat(10_000)}`);
  expect((heap() - before) / 2 ** 20).toBeLessThan(10);
});

test.each<[what: string, end: () => Promise<boolean>, later: boolean | string]>([
  ["succeeded", async () => true, true],
  ["thrown", () => Promise.reject(new ServiceError("credentials_unavailable")), true],
  ["failed", async () => false, "too_many_failures"],
])("createLoginThrottle counts a check as wrong until it ends, and has %s", async (_what, end, later) => {
  const { throttle, tryAs } = throttled(1);
  const started = Promise.withResolvers<void>();
  const first = throttle.attempt(NETWORK, USER, () => started.promise.then(end));
  expect(await tryAs(USER, true)).toBe("credentials_unavailable");
  expect(await tryAs("another", true)).toBe(true);
  started.resolve();
  await Promise.allSettled([first]);
  expect(await tryAs(USER, true)).toBe(later);
});

test("createLoginThrottle delays each rejection longer if more rejections are waiting, to at most 500 per second", async () => {
  const { throttle } = throttled(100);
  using _ = hurry();
  /** Returns the milliseconds until 100 clients have repeated this often without a pause. */
  const took = async (rounds: number): Promise<number> => {
    const started = Date.now();
    const again = async () => {
      for (let round = 0; round < rounds; round++) await throttle.delayRefusal();
    };
    await Promise.all(Array.from({ length: 100 }, again));
    return Date.now() - started;
  };
  expect([await took(1), await took(5)]).toEqual([200, 1000]);
});

test("createLoginThrottle delays at most 250 rejections at a time", async () => {
  const { throttle } = throttled(100);
  using _ = hurry();
  const delayed = Array.from({ length: 250 }, () => throttle.delayRefusal().then(() => "delayed"));
  expect(await Promise.race([...delayed, throttle.delayRefusal().then(() => "immediate")])).toBe("immediate");
  await Promise.all(delayed);
});

test("createLoginThrottle neither rejects nor delays when it is disabled", async () => {
  const { throttle, tryAs } = throttled(0);
  for (let attempt = 0; attempt < 300; attempt++) expect(await tryAs(USER)).toBe(false);
  const outcome = await Promise.race([throttle.delayRefusal().then(() => "immediate"), turn()]);
  expect(outcome).toBe("immediate");
});
