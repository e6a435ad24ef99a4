import { expect, test } from "bun:test";
import { traceId } from "./trace.ts";

const TRACE = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT = "00f067aa0ba902b7";

const of = (traceparent: string): string | undefined =>
  traceId(new Request("http://localhost/", { headers: { traceparent } }));

test.each([
  ["version 00", `00-${TRACE}-${PARENT}-01`],
  ["no flag", `00-${TRACE}-${PARENT}-00`],
  ["flags of a later version", `00-${TRACE}-${PARENT}-ff`],
  ["a later version", `cc-${TRACE}-${PARENT}-01`],
  ["a later version with more behind", `cc-${TRACE}-${PARENT}-01-what-comes`],
  ["a later version with nothing behind", `01-${TRACE}-${PARENT}-01-`],
  ["blanks around", ` 00-${TRACE}-${PARENT}-01\t`],
])("the trace is read from a traceparent with %s", (_what, traceparent) => {
  expect(of(traceparent)).toBe(TRACE);
});

test.each([
  ["nothing", ""],
  ["a trace alone", TRACE],
  ["version ff", `ff-${TRACE}-${PARENT}-01`],
  ["a version of one digit", `0-${TRACE}-${PARENT}-01`],
  ["version 00 and more behind", `00-${TRACE}-${PARENT}-01-x`],
  ["version 00 and a dash behind", `00-${TRACE}-${PARENT}-01-`],
  ["a later version and more without a dash", `cc-${TRACE}-${PARENT}-01.x`],
  ["zeros for a trace", `00-${"0".repeat(32)}-${PARENT}-01`],
  ["zeros for a parent", `00-${TRACE}-${"0".repeat(16)}-01`],
  ["zeros for a trace, of a later version", `01-${"0".repeat(32)}-${PARENT}-01`],
  ["upper case", `00-${TRACE.toUpperCase()}-${PARENT}-01`],
  ["a short trace", `00-${TRACE.slice(1)}-${PARENT}-01`],
  ["a long trace", `00-${TRACE}0-${PARENT}-01`],
  ["a short parent", `00-${TRACE}-${PARENT.slice(1)}-01`],
  ["no flags", `00-${TRACE}-${PARENT}`],
  ["short flags", `00-${TRACE}-${PARENT}-1`],
  ["something else than digits", `00-${TRACE.replace("4", "g")}-${PARENT}-01`],
  ["underscores", `00_${TRACE}_${PARENT}_01`],
  ["two of them", `00-${TRACE}-${PARENT}-01, 00-${TRACE}-${PARENT}-01`],
])("no trace is read from a traceparent with %s", (_what, traceparent) => {
  expect(of(traceparent)).toBeUndefined();
});

test("no trace is read without a traceparent", () => {
  expect(traceId(new Request("http://localhost/"))).toBeUndefined();
});
