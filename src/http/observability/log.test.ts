import { expect, test } from "bun:test";
import { traceId } from "./log.ts";

const TRACE = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT = "00f067aa0ba902b7";

const of = (traceparent: string): string | undefined =>
  traceId(new Request("http://localhost/", { headers: { traceparent } }));

test.each([
  ["version 00", `00-${TRACE}-${PARENT}-01`],
  ["no flag set", `00-${TRACE}-${PARENT}-00`],
  ["all flags set", `00-${TRACE}-${PARENT}-ff`],
  ["a later version", `cc-${TRACE}-${PARENT}-01`],
  ["a later version and additional fields", `cc-${TRACE}-${PARENT}-01-what-comes`],
  ["a later version and an empty additional field", `01-${TRACE}-${PARENT}-01-`],
  ["surrounding whitespace", ` 00-${TRACE}-${PARENT}-01\t`],
])("traceId returns the trace id of a traceparent with %s", (_what, traceparent) => {
  expect(of(traceparent)).toBe(TRACE);
});

test.each([
  ["an empty value", ""],
  ["a trace id only", TRACE],
  ["version ff", `ff-${TRACE}-${PARENT}-01`],
  ["a version of one digit", `0-${TRACE}-${PARENT}-01`],
  ["version 00 and additional fields", `00-${TRACE}-${PARENT}-01-x`],
  ["version 00 and a trailing dash", `00-${TRACE}-${PARENT}-01-`],
  ["a later version and additional text without a dash", `cc-${TRACE}-${PARENT}-01.x`],
  ["an all-zero trace id", `00-${"0".repeat(32)}-${PARENT}-01`],
  ["an all-zero parent id", `00-${TRACE}-${"0".repeat(16)}-01`],
  ["a later version and an all-zero trace id", `01-${"0".repeat(32)}-${PARENT}-01`],
  ["a trace id in upper case", `00-${TRACE.toUpperCase()}-${PARENT}-01`],
  ["a trace id that is too short", `00-${TRACE.slice(1)}-${PARENT}-01`],
  ["a trace id that is too long", `00-${TRACE}0-${PARENT}-01`],
  ["a parent id that is too short", `00-${TRACE}-${PARENT.slice(1)}-01`],
  ["no flags", `00-${TRACE}-${PARENT}`],
  ["flags that are too short", `00-${TRACE}-${PARENT}-1`],
  ["a character that is not a hexadecimal digit", `00-${TRACE.replace("4", "g")}-${PARENT}-01`],
  ["underscores instead of dashes", `00_${TRACE}_${PARENT}_01`],
  ["two values", `00-${TRACE}-${PARENT}-01, 00-${TRACE}-${PARENT}-01`],
])("traceId returns undefined for a traceparent with %s", (_what, traceparent) => {
  expect(of(traceparent)).toBeUndefined();
});

test("traceId returns undefined without a traceparent", () => {
  expect(traceId(new Request("http://localhost/"))).toBeUndefined();
});
