import { describe, expect, test } from "bun:test";
import { readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { version } from "../package.json" with { type: "json" };
import type { Command } from "./command.ts";
import { parseExposition } from "./exposition.ts";
import { freePort } from "./free-port.ts";
import { openDatabases, whyNoDatabase } from "./postgres.ts";
import { postTodo } from "./served-todos.ts";
import { metricsUrl, scrape, serve, stop, store } from "./server.ts";
import { skipFor } from "./skip.ts";
import { temporaryFolder } from "./temporary.ts";
import { until } from "./until.ts";

const DEPLOY = fileURLToPath(new URL("../deploy", import.meta.url));
const folder = temporaryFolder();

test("the metrics port has its own host setting", async () => {
  await using server = serve(["--metrics-port", "0", "--metrics-host", "127.0.0.2"]);
  expect(await metricsUrl(server)).toMatch(/^http:\/\/127\.0\.0\.2:\d+\/metrics$/);
});

test("metrics are in the format of Prometheus, and their port closes with the service", async () => {
  await using server = serve(["--metrics-port", String(await freePort()), "--max-todos", "50"]);
  const url = await metricsUrl(server);
  expect(url).toMatch(/^http:\/\/127\.0\.0\.1:\d+\/metrics$/);
  await store(server, 3);
  const samples = parseExposition(await scrape(server));
  expect(samples.get(`todo_build_info{version="${version}",runtime="bun ${Bun.version}"}`)).toBe(1);
  expect([samples.get("todo_store_todos"), samples.get("todo_store_todos_limit")]).toEqual([3, 50]);
  for (const name of ["process_open_fds", "process_resident_memory_bytes", "process_cpu_seconds_total"])
    expect(samples.get(name)).toBeGreaterThan(0);
  // A kept-alive connection, such as that of Prometheus, does not delay the shutdown.
  await stop(server);
  expect(await fetch(url).catch(() => "gone")).toBe("gone");
});

test("evicted idempotency keys are counted", async () => {
  await using server = serve(["--metrics-port", "0", "--max-todos", "2"]);
  const url = await server.url;
  const evicted = async () =>
    parseExposition(await scrape(server)).get("todo_idempotency_keys_evicted_total");
  expect(await evicted()).toBe(0);
  for (const [index, key] of ["a", "b", "c", "a", "a"].entries()) {
    const response = await postTodo(url, "x", { "Idempotency-Key": key });
    expect(response.status).toBe(201);
    expect(response.headers.get("location")).toBe(`todos/${Math.min(index + 1, 4)}`);
    await fetch(`${url}/api/todos/${index + 1}`, { method: "DELETE" });
  }
  expect(await evicted()).toBe(2);
});

describe("batches of", () => {
  const WRITES = 40;

  async function expectBatches(server: Command): Promise<void> {
    await server.url;
    const started = performance.now();
    await store(server, WRITES);
    const samples = parseExposition(await scrape(server));
    const seconds = (performance.now() - started) / 1000;
    const batches = samples.get("todo_store_batch_writes_count") ?? 0;
    expect(batches).toBeWithin(1, WRITES + 1);
    expect(samples.get("todo_store_batch_writes_sum")).toBe(WRITES);
    expect(samples.get("todo_store_batch_duration_seconds_count")).toBe(batches);
    expect(samples.get("todo_store_batch_duration_seconds_sum")).toBeWithin(Number.MIN_VALUE, seconds);
    const inserts = 'todo_store_operation_duration_seconds_count{operation="insert"}';
    expect(samples.get(inserts)).toBe(WRITES);
    expect(samples.get("todo_store_todos")).toBe(WRITES);
  }

  test("SQLite are counted and timed, and its files and their disk have metrics", async () => {
    const path = join(folder, "todos.db");
    await using server = serve(["--metrics-port", "0", "--store", `sqlite:${path}`]);
    await expectBatches(server);
    // The server reads the sizes once a second.
    let samples = parseExposition("");
    await until(async () => {
      samples = parseExposition(await scrape(server));
      return samples.get("todo_store_wal_bytes") === statSync(`${path}-wal`).size;
    }, "the metric has the size of the WAL");
    expect(samples.get("todo_store_database_bytes")).toBe(statSync(path).size);
    const [free = 0, size = 0] = ["free", "size"].map((what) => samples.get(`todo_store_disk_${what}_bytes`));
    expect(free).toBeWithin(1, size);
  });

  test.skipIf(skipFor(whyNoDatabase))("PostgreSQL are counted and timed", async () => {
    await using databases = await openDatabases();
    await using server = serve(["--metrics-port", "0", "--store", await databases.newDatabase()]);
    await expectBatches(server);
    const samples = parseExposition(await scrape(server));
    expect(samples.get("todo_store_connections")).toBe(4);
    expect(samples.get("todo_store_queries")).toBeNumber();
  });
});

test("the reference lists every metric in deploy/", () => {
  // Another test compares the reference with a running server.
  const reference = readFileSync(join(DEPLOY, "../docs/reference/metrics-and-logs.md"), "utf8");
  const names = new Set([...reference.matchAll(/^- `(\w+)` \(/gm)].map(([, name = ""]) => name));
  const used = ["alerts.yml", "grafana-dashboard.json"].flatMap((file) =>
    [...readFileSync(join(DEPLOY, file), "utf8").matchAll(/\b(?:todo|process|nodejs)_[a-z0-9_]+/g)].map(
      ([name]) => name,
    ),
  );
  expect(used.length).toBeGreaterThan(30);
  const unknown = used.filter((name) => !names.has(name.replace(/_(?:bucket|sum|count)$/, "")));
  expect(unknown).toEqual([]);
});

test("the guide lists each alert, and each alert says what to do", () => {
  const alerts = readFileSync(join(DEPLOY, "alerts.yml"), "utf8")
    .split(/^ {6}- alert: /m)
    .slice(1);
  const page = readFileSync(join(DEPLOY, "../docs/how-to/monitoring.md"), "utf8");
  const [, section = ""] = page.split("\n## Alerts\n");
  const listed = [...section.matchAll(/^- `(\w+)`: /gm)].map(([, name]) => name);
  expect(alerts.length).toBeGreaterThan(10);
  expect(alerts.map((alert) => alert.split("\n")[0])).toEqual(listed);
  for (const alert of alerts) {
    expect(alert).toMatch(/\n {10}description: ".+"\n/);
    expect(alert).toContain('/docs/how-to/monitoring.md#alerts"\n');
  }
});
