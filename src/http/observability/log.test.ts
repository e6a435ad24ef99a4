import { expect, test } from "bun:test";
import { as } from "../../../test/credentials.ts";
import { startService } from "../../../test/service.ts";
import { storeWith } from "../../../test/store.ts";
import { ServiceError } from "../../error.ts";
import { NOOP_LOG, traceId } from "./log.ts";

const TRACE = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT = "00f067aa0ba902b7";
const IDS = `${TRACE}-${PARENT}`;

const of = (traceparent: string | undefined): string | undefined =>
  traceId(new Request("http://localhost/", traceparent === undefined ? {} : { headers: { traceparent } }));

test.each([
  ["version 00, with any flags", [`00-${IDS}-01`, `00-${IDS}-00`, `00-${IDS}-ff`]],
  ["a later version", [`cc-${IDS}-01`, `cc-${IDS}-01-what-comes`, `01-${IDS}-01-`]],
  ["surrounding whitespace", [` 00-${IDS}-01\t`]],
])("traceId returns the trace id of a traceparent with %s", (_what, values) => {
  for (const value of values) expect([value, of(value)]).toEqual([value, TRACE]);
});

test.each([
  ["no value", [undefined, ""]],
  ["a part only", [TRACE, `00-${IDS}`]],
  ["a bad version", [`ff-${IDS}-01`, `0-${IDS}-01`]],
  ["more after version 00", [`00-${IDS}-01-x`, `00-${IDS}-01-`, `00-${IDS}-01, 00-${IDS}-01`]],
  ["more without a dash after a later version", [`cc-${IDS}-01.x`]],
  ["an all-zero trace id", [`00-${"0".repeat(32)}-${PARENT}-01`, `01-${"0".repeat(32)}-${PARENT}-01`]],
  ["an all-zero parent id", [`00-${TRACE}-${"0".repeat(16)}-01`]],
  ["a trace id in upper case", [`00-${TRACE.toUpperCase()}-${PARENT}-01`]],
  ["a trace id of another length", [`00-${TRACE.slice(1)}-${PARENT}-01`, `00-${TRACE}0-${PARENT}-01`]],
  ["a parent id that is too short", [`00-${TRACE}-${PARENT.slice(1)}-01`]],
  ["flags that are too short", [`00-${IDS}-1`]],
  ["another character", [`00-${IDS.replace("4", "g")}-01`, `00_${TRACE}_${PARENT}_01`]],
])("traceId returns undefined for a traceparent with %s", (_what, values) => {
  for (const value of values) expect([value, of(value)]).toEqual([value, undefined]);
});

const unavailable = new ServiceError("store_unavailable", { cause: new Error("connection refused") });

function failing() {
  let thrown: unknown;
  const store = storeWith({
    get: () => {
      throw thrown;
    },
  });
  const service = startService({ store });
  return {
    ...service,
    linesOf: async (error: unknown) => {
      thrown = error;
      await fetch(`${service.url}/api/todos/1`);
      return service.lines.splice(0);
    },
    summaries: () => {
      service.close();
      return service.lines.splice(0);
    },
  };
}

test("the log has the first failure of each code and reason, with the complete error", async () => {
  await using service = failing();
  const { linesOf, summaries } = service;
  const full = new ServiceError("store_full", { detail: "it is full" });
  const fault = new TypeError("not a function");
  const otherFault = new TypeError("not an object");
  for (const [error, fields] of [
    [unavailable, { code: "store_unavailable", err: unavailable.cause }],
    [full, { code: "store_full", err: full }],
    [fault, { code: "internal_error", err: fault }],
    [otherFault, { code: "internal_error", err: otherFault }],
  ] as const) {
    expect(await linesOf(error)).toMatchObject([{ level: "error", fields, message: "request failed" }]);
    expect(await linesOf(error)).toEqual([]);
    expect(await linesOf(error)).toEqual([]);
  }
  expect(summaries().map(({ fields }) => [fields.code, fields.times])).toEqual([
    ["store_unavailable", 2],
    ["store_full", 2],
    ["internal_error", 2],
    ["internal_error", 2],
  ]);
});

test("the log has the failures of each route", async () => {
  const fail = () => Promise.reject(unavailable);
  await using service = startService({ store: storeWith({ insert: fail, get: fail }) });
  for (const _ of [1, 2])
    for (const line of ["GET /api/todos/1", "POST /api/todos"])
      await service.outcome(line, {}, line.startsWith("POST") ? { title: "x" } : undefined);
  expect(service.lines.map(({ fields }) => fields.route)).toEqual(["/api/todos/:id", "/api/todos"]);
});

test.each<[what: string, error: unknown]>([
  [
    "whose message cannot be read",
    Object.defineProperty(new Error(), "message", {
      get() {
        throw new Error("no");
      },
    }),
  ],
  ["that is a number", 7],
  ["that is undefined", undefined],
  ["with a long message", new Error("x".repeat(1_000_000))],
])("an error %s is logged and counted", async (_what, error) => {
  await using service = failing();
  const { linesOf, summaries } = service;
  expect(await linesOf(error)).toMatchObject([{ level: "error", fields: { code: "internal_error" } }]);
  expect(await linesOf(error)).toEqual([]);
  expect(summaries()).toMatchObject([{ fields: { code: "internal_error", times: 1 } }]);
});

test("an error that the logger cannot serialize is logged without its details", async () => {
  const written: string[] = [];
  const log = { ...NOOP_LOG, error: (fields: object) => written.push(JSON.stringify(fields)) };
  const hostile = new Proxy(new Error("hostile"), {
    get() {
      throw new Error("no");
    },
  });
  const store = storeWith({ get: () => Promise.reject(hostile) });
  await using service = startService({ store, log });
  for (const _ of [1, 2]) expect((await service.send("GET", "/api/todos/1")).status).toBe(500);
  service.close();
  expect(written.map((line) => JSON.parse(line))).toMatchObject([
    { code: "internal_error", route: "/api/todos/:id" },
    { code: "internal_error", route: "/api/todos/:id", times: 1 },
  ]);
});

test("the log distinguishes the reasons of one code by the innermost message", async () => {
  const reasons = ["connection refused", "password expired", "connection refused"];
  const lookupClient = () =>
    Promise.reject(new ServiceError("store_unavailable", { cause: new Error(reasons.shift()) }));
  await using service = startService({ credentials: { lookupClient } });
  for (const _ of [1, 2, 3]) await service.send("GET", "/api/whoami", as("Bearer x"));
  service.close();
  expect(service.lines.map(({ fields }) => [fields.code, fields.times])).toEqual([
    ["credentials_unavailable", undefined],
    ["credentials_unavailable", undefined],
    ["credentials_unavailable", 1],
  ]);
});
