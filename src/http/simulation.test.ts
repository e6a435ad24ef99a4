import { expect, test } from "bun:test";
import { callRoute } from "../../test/call-route.ts";
import { hurry } from "../../test/hurry.ts";
import { statusAndCode } from "../../test/problem.ts";
import { startService } from "../../test/service.ts";
import { openMemory } from "../storage/memory/store.ts";
import { createService } from "./service.ts";
import { parseSimulation } from "./simulation.ts";

test.each([
  ["latency=200ms,errors=10%", { latencyMs: 200, errorRate: 0.1 }],
  ["latency=2s", { latencyMs: 2000, errorRate: 0 }],
  ["errors=0.5%", { latencyMs: 0, errorRate: 0.005 }],
])("parseSimulation reads %s", (text, simulation) => {
  expect(parseSimulation(text)).toEqual(simulation);
});

test.each([
  "",
  "latency=200",
  "errors=10",
  "errors=101%",
  "latency=61s",
  "latency=1s,",
  "errors=1%,latency=1s",
  "delay=1s",
])("parseSimulation rejects %p", (text) => {
  expect(() => parseSimulation(text)).toThrow("must be like latency=200ms,errors=10%");
});

test("a simulation fails requests before the store is asked, with a problem that pages of listed origins can read", async () => {
  const store = openMemory();
  await using service = startService({
    store,
    network: { corsOrigins: ["https://app.example"] },
    simulation: { latencyMs: 0, errorRate: 1 },
  });
  const headers = { Origin: "https://app.example", "Content-Type": "application/json" };
  const response = await service.send("POST", "/api/todos", { headers, body: '{"title":"x"}' });
  expect(response.headers.get("access-control-allow-origin")).toBe("https://app.example");
  expect(await statusAndCode(response)).toEqual([500, "internal_error"]);
  expect(await statusAndCode(await service.send("GET", "/api/todos"))).toEqual([500, "internal_error"]);
  expect((await store.position()).sequence).toBe(0);
});

test("a simulation fails the given share of the requests", async () => {
  await using service = startService({ simulation: { latencyMs: 0, errorRate: 0.5 } });
  const responses = await Promise.all(Array.from({ length: 200 }, () => service.send("GET", "/api/todos")));
  expect(responses.filter(({ ok }) => ok).length).toBeWithin(50, 151);
});

test("a simulation delays requests, but neither event streams nor what is outside of /api", async () => {
  const latencyMs = 300;
  const service = createService({ store: openMemory(), simulation: { latencyMs, errorRate: 1 } });
  using _ = hurry();
  const timeOf = async (path: string): Promise<number> => {
    const started = Date.now();
    const { body } = await callRoute(service, path);
    await body?.cancel();
    return Date.now() - started;
  };
  for (const path of ["/livez", "/readyz", "/api/events"])
    expect([path, await timeOf(path)]).toEqual([path, 0]);
  expect(await timeOf("/api/todos")).toBe(latencyMs);
});
