import { expect, test } from "bun:test";
import pino from "pino";
import { capturingLog } from "../../test/log.ts";
import { startService } from "../../test/service.ts";
import { storeWith } from "../../test/store.ts";
import { Failure } from "../failure.ts";

const REQUESTS = 10_000;
const AT_ONCE = 50;

const away = new Failure("store_unavailable", { cause: new Error("connection refused") });

test(`the log of a store that is away has ${REQUESTS} lines for as many requests, and few stacks`, async () => {
  const lines: string[] = [];
  const log = pino({}, { write: (line) => lines.push(line) });
  const store = storeWith({ get: () => Promise.reject(away) });
  await using service = startService({ store, log });
  const work = async (): Promise<void> => {
    for (let n = 0; n < REQUESTS / AT_ONCE; n++) {
      const response = await fetch(`${service.url}/api/todos/1`);
      expect(response.status).toBe(503);
      await response.arrayBuffer();
    }
  };
  const started = performance.now();
  await Promise.all(Array.from({ length: AT_ONCE }, work));
  const seconds = (performance.now() - started) / 1000;
  expect(lines.length).toBe(REQUESTS);
  const whole = lines.filter((line) => line.includes('"stack"'));
  expect(whole.length).toBeWithin(1, 2 + seconds / 10);
  for (const line of lines) {
    expect(line).toContain("connection refused");
    if (!whole.includes(line)) expect(line.length).toBeLessThan(300);
  }
});

test("the log has all of an error once in ten seconds for each code, and of a fault of the service always", async () => {
  const { log, lines } = capturingLog();
  let now = 0;
  let error: Error = away;
  const store = storeWith({
    get: () => {
      throw error;
    },
  });
  await using service = startService({ store, log, now: () => now });
  const written = async (at: number, thrown: Error) => {
    [now, error] = [at, thrown];
    await fetch(`${service.url}/api/todos/1`);
    const [line, ...more] = lines.splice(0);
    expect(more).toEqual([]);
    return line?.fields;
  };
  const full = new Failure("store_full", { detail: "it is full" });
  const fault = new TypeError("not a function");
  expect(await written(0, away)).toMatchObject({ code: "store_unavailable", err: away.cause });
  const short = await written(9_999, away);
  expect(short).toMatchObject({ code: "store_unavailable", reason: "connection refused", method: "GET" });
  expect(short).not.toHaveProperty("err");
  expect(await written(9_999, full)).toMatchObject({ code: "store_full", err: full });
  expect(await written(9_999, full)).toMatchObject({ code: "store_full", reason: "it is full" });
  expect(await written(9_999, fault)).toMatchObject({ code: "internal_error", err: fault });
  expect(await written(9_999, fault)).toMatchObject({ code: "internal_error", err: fault });
  expect(await written(10_000, away)).toMatchObject({ code: "store_unavailable", err: away.cause });
});

test("the reason is the innermost one", async () => {
  const { log, lines } = capturingLog();
  const lookupClient = () => Promise.reject(away);
  await using service = startService({ lookupClient, log });
  const headers = { Authorization: "Bearer x" };
  for (const _ of [1, 2]) await service.send("GET", "/api/whoami", { headers });
  expect(lines.at(-1)?.fields).toMatchObject({
    code: "credentials_unavailable",
    reason: "connection refused",
  });
});
