import { describe, expect, test } from "bun:test";
import { Failure } from "../failure.ts";
import { Throttle } from "./throttle.ts";

const NETWORK = "10.0.0.5";
const USER = "admin";

/** How often a password was wrong, until it was refused. */
function throttled(mostFailures: number) {
  const throttle = new Throttle(mostFailures, () => 0);
  const tryAs = async (user: string, isRight = false): Promise<boolean | string> => {
    try {
      return await throttle.guard(NETWORK, user, async () => isRight);
    } catch (error) {
      if (error instanceof Failure) return error.code;
      throw error;
    }
  };
  return { throttle, tryAs };
}

describe("Throttle", () => {
  test.each<[others: number, outcome: boolean | string]>([
    [9_999, "too_many_failures"],
    [10_000, true],
  ])("remembers 10,000 users and no more: after %d others, the first gets %p", async (others, outcome) => {
    const { tryAs } = throttled(1);
    expect(await tryAs(USER)).toBe(false);
    for (let user = 0; user < others; user++) await tryAs(`user ${user}`);
    expect(await tryAs(USER, true)).toBe(outcome);
  });

  test("lets the longest untouched go first", async () => {
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
    ["10.0.0.1", "1X"],
  ])("tells networks and users apart, whatever their names: %s, %s", async (network, user) => {
    const throttle = new Throttle(1, () => 0);
    expect(await throttle.guard("10.0.0.1", "1x", async () => false)).toBe(false);
    expect(await throttle.guard(network, user, async () => true)).toBe(true);
  });

  test("stays for whoever has reached it, however many other names are tried once", async () => {
    const { tryAs } = throttled(2);
    for (let attempt = 0; attempt < 2; attempt++) expect(await tryAs(USER)).toBe(false);
    for (let user = 0; user < 10_100; user++) await tryAs(`user ${user}`);
    expect(await tryAs(USER, true)).toBe("too_many_failures");
  });

  test("keeps little of a long name", async () => {
    const { tryAs } = throttled(1);
    const heap = (): number => {
      Bun.gc(true);
      return process.memoryUsage().heapUsed;
    };
    const before = heap();
    for (let user = 0; user < 6_000; user++) await tryAs(`${user} ${"x".repeat(10_000)}`);
    expect((heap() - before) / 2 ** 20).toBeLessThan(10);
  });

  test("runs 16 checks for a user at once, and the rest as they end", async () => {
    const throttle = new Throttle(100, () => 0);
    const begun: PromiseWithResolvers<boolean>[] = [];
    const check = (): Promise<boolean> => {
      const end = Promise.withResolvers<boolean>();
      begun.push(end);
      return end.promise;
    };
    const passed = Array.from({ length: 40 }, () => throttle.guard(NETWORK, USER, check));
    for (let ended = 0; ended < passed.length; ended++) {
      await Bun.sleep(0);
      expect(begun.length).toBe(Math.min(ended + 16, passed.length));
      // Somebody else does not wait for them.
      expect(await throttle.guard(NETWORK, "another", async () => true)).toBe(true);
      begun[ended]?.resolve(true);
    }
    expect(await Promise.all(passed)).toEqual(passed.map(() => true));
  });

  test("holds refusals back the longer the more there are", async () => {
    const { throttle } = throttled(100);
    const took = async (count: number): Promise<number> => {
      const started = performance.now();
      await Promise.all(Array.from({ length: count }, () => throttle.hold()));
      return performance.now() - started;
    };
    // A timer is never early but for a part of a millisecond.
    expect(await took(100)).toBeGreaterThan(198);
    // Of 100 that ask again at once, five times, no more than five hundred a second are answered.
    const started = performance.now();
    const again = async () => {
      for (let round = 0; round < 5; round++) await throttle.hold();
    };
    await Promise.all(Array.from({ length: 100 }, again));
    expect(performance.now() - started).toBeGreaterThan(800);
  });

  test("holds five hundred refusals, and what comes beyond not at all", async () => {
    const { throttle } = throttled(100);
    const held = Array.from({ length: 500 }, () => throttle.hold().then(() => "held"));
    expect(await Promise.race([...held, throttle.hold().then(() => "not held")])).toBe("not held");
    await Promise.all(held);
  });

  test("that is off holds nothing back", async () => {
    const { throttle } = throttled(0);
    const outcome = await Promise.race([throttle.hold().then(() => "at once"), Bun.sleep(0)]);
    expect(outcome).toBe("at once");
  });
});
