import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { errorsOf } from "../test/rejection.ts";
import { parseDuration } from "./validation.ts";

const SECOND = 1000;
const HOUR = 3600 * SECOND;
const DAY = 24 * HOUR;

describe("parseDuration", () => {
  test.each([
    ["0", 0],
    ["0s", 0],
    ["007d", 7 * DAY],
    ["36500d", 36_500 * DAY],
    ["876000h", 36_500 * DAY],
  ])("parses %j", (text, milliseconds) => {
    expect(parseDuration("overlap", text)).toBe(milliseconds);
  });

  test("parses every whole number of each unit up to 36500 days", () => {
    const units = Object.entries({ s: SECOND, m: 60 * SECOND, h: HOUR, d: DAY, w: 7 * DAY });
    fc.assert(
      fc.property(fc.nat({ max: 2 ** 31 }), fc.constantFrom(...units), (count, [unit, length]) => {
        const read = () => parseDuration("x", `${count}${unit}`);
        if (count * length <= 36_500 * DAY) expect(read()).toBe(count * length);
        else expect(errorsOf(read)).toEqual([{ field: "x", message: "must be at most 36500d" }]);
      }),
    );
  });

  test.each([
    ...["", " ", "1", "d", "90 d", " 90d", "90d ", "90d\n", "+90d", "-1d", "1.5h", "1e3d", "0x1d", "90D"],
    ...["90days", "1d12h", "P90D", "2026-01-01", "never", "٣d", "1y", "1ms", "1__proto__"],
  ])("rejects %j and names the valid forms", (text) => {
    expect(errorsOf(() => parseDuration("expires", text))).toEqual([
      { field: "expires", message: "must be a duration such as 90d, 2w, 24h, 15m or 30s" },
    ]);
  });

  test.each(["36501d", "5215w", "876001h", "3153600001s", `${"9".repeat(400)}d`])(
    "rejects %j as too long",
    (text) => {
      expect(errorsOf(() => parseDuration("expires", text))).toEqual([
        { field: "expires", message: "must be at most 36500d" },
      ]);
    },
  );

  test("rejects values other than strings", () => {
    for (const value of [undefined, null, 90, true, ["90d"], {}]) {
      expect(errorsOf(() => parseDuration("expires", value))).toEqual([
        { field: "expires", message: "must be a string" },
      ]);
    }
  });
});
