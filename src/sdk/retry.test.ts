import { describe, expect, test } from "bun:test";
import { hurry } from "../../test/hurry.ts";
import { delay, isTransient, parseRetryAfter, RETRY_MAX_MS, retryDelay } from "./retry.ts";
import { TodoApiError } from "./types.ts";

const error = (code: TodoApiError["code"], status?: number, retryAfter?: number): TodoApiError =>
  new TodoApiError(code, "no", { status, retryAfter });

describe("isTransient", () => {
  test.each<[what: string, expected: boolean, value: unknown]>([
    ["no response", true, error("network_error")],
    ["a timeout", true, error("timeout")],
    ["another conflict", false, error("key_exists", 409)],
    ["408", true, error("unexpected_answer", 408)],
    ["429", true, error("too_many_failures", 429)],
    ["500", false, error("internal_error", 500)],
    ["502", true, error("unexpected_answer", 502)],
    ["503", true, error("stopping", 503)],
    ["504", true, error("unexpected_answer", 504)],
    ["507", false, error("store_full", 507)],
    ["an incomplete success", true, error("unexpected_answer", 200)],
    ["300", false, error("unexpected_answer", 300)],
    ["a redirect", false, error("unexpected_answer", 304)],
    ["an error of another kind", false, new TypeError("no")],
    ["an abort", false, "reason"],
  ])("of %s is %p", (_what, expected, value) => {
    expect(isTransient(value)).toBe(expected);
  });
});

describe("retryDelay", () => {
  test.each([
    [0, 100, 200],
    [1, 200, 400],
    [3, 800, 1600],
    [30, RETRY_MAX_MS / 2, RETRY_MAX_MS],
    [2000, RETRY_MAX_MS / 2, RETRY_MAX_MS],
  ])("of attempt %i is random between %i and %i ms", (attempt, min, max) => {
    const delays = Array.from({ length: 200 }, () => retryDelay(attempt));
    expect(Math.min(...delays)).toBeGreaterThanOrEqual(min);
    expect(Math.max(...delays)).toBeLessThanOrEqual(max);
    expect(new Set(delays).size).toBeGreaterThan(100);
  });

  test("is at least the time in Retry-After", () => {
    expect(retryDelay(0, error("stopping", 503, 7))).toBe(7000);
    expect(retryDelay(30, error("stopping", 503, 1))).toBeGreaterThanOrEqual(RETRY_MAX_MS / 2);
  });
});

describe("retryAfterOf", () => {
  test.each<[value: string | undefined, expected: number | undefined]>([
    [undefined, undefined],
    ["0", 0],
    ["120", 120],
    ["-1", undefined],
    ["1.5", undefined],
    ["soon", undefined],
    ["Thu, 01 Jan 1970 00:00:00 GMT", undefined],
  ])("of %p is %p", (value, expected) => {
    const headers: Record<string, string> = value === undefined ? {} : { "Retry-After": value };
    expect(parseRetryAfter(new Response(null, { headers }))).toBe(expected);
  });

  test("of a date is the seconds until then", () => {
    const date = new Date(Date.now() + 3_600_000).toUTCString();
    const seconds = parseRetryAfter(new Response(null, { headers: { "Retry-After": date } }));
    expect(seconds).toBeWithin(3500, 3601);
  });
});

describe("delay", () => {
  test.each([
    [20, 20],
    [2 ** 31 - 1, 2 ** 31 - 1],
    // No timer waits longer.
    [2 ** 31, 2 ** 31 - 1],
  ])("of %d ms resolves after exactly %d ms", async (ms, expected) => {
    using _ = hurry();
    const start = Date.now();
    await delay(ms, undefined);
    expect(Date.now() - start).toBe(expected);
  });

  test("resolves when the signal aborts, before or during the delay", async () => {
    await delay(3_600_000, AbortSignal.abort());
    const controller = new AbortController();
    const waiting = delay(3_600_000, controller.signal);
    controller.abort();
    await waiting;
  });
});
