import { expect, test } from "bun:test";
import { lead } from "./position.ts";

test.each<[position: string, other: string | undefined, expected: number]>([
  ["e-7", "e-7", 0],
  ["e-10", "e-9", 1],
  ["e-9", "e-10", -1],
  ["ae-1", "ae-9", -8],
  ["f-1", "e-9", Number.NaN],
  ["ae-1", "be-9", Number.NaN],
  ["e-1", "ee-1", Number.NaN],
  ["e-1", undefined, Number.NaN],
  ["", "", Number.NaN],
])("lead of %s over %s is %p", (position, other, expected) => {
  expect(lead(position, other)).toBe(expected);
});
