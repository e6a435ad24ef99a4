import { expect, test } from "bun:test";
import { parseExposition } from "../../test/exposition.ts";
import { Metrics } from "../http/observability/metrics.ts";
import { registerStoreMetrics } from "./store-metrics.ts";

test("the metrics of a store are read at each scrape, and have its rescue file while one exists", async () => {
  const metrics = new Metrics({ version: "1", runtime: "bun" });
  let rescueFile: string | undefined = "a.ndjson";
  const store = {
    count: 7,
    eventLag: 3,
    pool: { connections: 4, queries: 5 },
    get rescueFile() {
      return rescueFile;
    },
  };
  registerStoreMetrics(metrics, store, 10);
  const names = [
    "store_todos",
    "store_todos_limit",
    "event_lag_events",
    "store_connections",
    "store_queries",
  ];
  const samples = parseExposition(await metrics.text());
  expect(names.map((name) => samples.get(`todo_${name}`))).toEqual([7, 10, 3, 4, 5]);
  expect(samples.get('todo_store_rescue_info{file="a.ndjson"}')).toBe(1);
  store.count = 8;
  rescueFile = undefined;
  const later = parseExposition(await metrics.text());
  expect(later.get("todo_store_todos")).toBe(8);
  expect([...later.keys()].join()).not.toContain("a.ndjson");
});
