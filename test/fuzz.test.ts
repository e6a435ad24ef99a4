import { expect, setDefaultTimeout, test } from "bun:test";
import { hashToken } from "../src/credential/token.ts";
import { AUTHENTICATION_OUTCOMES, SURFACES } from "../src/http/observability/instrumentation.ts";
import { Metrics } from "../src/http/observability/metrics.ts";
import { openMemory } from "../src/storage/memory/store.ts";
import { parseNewTodo, STORE_OPERATIONS } from "../src/todo.ts";
import { labelsOf, parseExposition } from "./exposition.ts";
import { exchange, fuzz, hasFailed, KEY_ID, VALID_REQUESTS } from "./fuzzer.ts";
import { capturingLog } from "./log.ts";
import { pathIn, startService } from "./service.ts";
import { watch } from "./store.ts";
import { until } from "./until.ts";

const REQUESTS = 5000;
setDefaultTimeout(300_000);

test(`${REQUESTS} mutated requests cause no 5xx, no timeout and no damage`, async () => {
  const { log, lines } = capturingLog();
  const memory = openMemory();
  const tokenHash = hashToken("deploy");
  /** Inserts the key that requests rotate. A mutated request can delete it, such as DELETE /admin/keys/ID?/rotate. */
  const insertKey = async (name: string): Promise<void> => {
    if ((await memory.keys.find(tokenHash)) === undefined)
      await memory.keys.insert({ id: KEY_ID, name, tokenHash, scope: "write", createdAt: 0 });
  };
  await insertKey("deploy");
  const watched = watch(memory);
  const metrics = new Metrics({ version: "1.2.3", runtime: "bun 4.5.6" });
  await using service = startService({
    store: watched.store,
    credentials: {
      keys: memory.keys,
      lookupClient: (token) => (token === "token" ? { name: "client" } : undefined),
      checkUser: (user, password) => user === "admin" && password === "password",
    },
    network: { onLoopback: true },
    accessLog: true,
    observer: metrics.observe(watched.store),
    log: { ...log, info() {}, warn() {} },
  });
  for (const bytes of VALID_REQUESTS) {
    expect((await exchange(service.port, { bytes, isWhole: true })).text).toMatch(/^HTTP\/1\.1 [234]\d\d /);
  }
  Bun.gc(true);
  const before = process.memoryUsage.rss();

  let renewed = 0;
  const statuses = await fuzz(service.port, REQUESTS, {
    isWrong: async (exchanged) => {
      await insertKey(`deploy ${++renewed}`);
      if (lines.length > 0) throw new Error(JSON.stringify(lines));
      return hasFailed(exchanged);
    },
  });

  // A fuzzer whose requests all fail in the same way tests nothing.
  const expected = "200 201 204 400 401 404 405 409 413 415 422 none".split(" ");
  expect([...statuses.keys()]).toEqual(expect.arrayContaining(expected));
  expect(watched.opened()).toBeGreaterThan(REQUESTS / 100);
  expectClosedLabels(await metrics.text(), service.paths);
  await until(() => watched.open() === 0, "every event stream is closed");
  expect((await memory.keys.list()).length).toBeGreaterThan(REQUESTS / 100);
  const created = await service.sendJson("POST", "/api/todos", { title: "after all" });
  expect(created.status).toBe(201);
  const location = pathIn(created.headers.get("location"), created) ?? "";
  expect(await (await service.send("GET", location)).json()).toMatchObject({ title: "after all" });
  const todos: unknown[] = JSON.parse(await (await service.send("GET", "/api/todos")).text());
  for (const todo of todos) parseNewTodo(todo);
  Bun.gc(true);
  expect((process.memoryUsage.rss() - before) / 2 ** 20).toBeLessThan(150);
});

/** Throws if a request has created a series or a label. */
function expectClosedLabels(exposition: string, paths: readonly string[]): void {
  const closed: Readonly<Record<string, readonly string[] | RegExp>> = {
    route: paths,
    method: [...["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"], "other"],
    status: /^(?:200|201|204|304|308|4\d\d)$/,
    le: /^(?:\d+(?:\.\d+)?|\+Inf)$/,
    surface: SURFACES,
    outcome: AUTHENTICATION_OUTCOMES,
    operation: Object.keys(STORE_OPERATIONS),
    reason: ["unavailable", "full", "error"],
    version: ["1.2.3"],
    runtime: ["bun 4.5.6"],
  };
  const methods = new Set<string>();
  for (const series of parseExposition(exposition).keys())
    for (const [name, label] of Object.entries(labelsOf(series))) {
      const values = closed[name] ?? [];
      const isClosed = values instanceof RegExp ? values.test(label) : values.includes(label);
      expect([series, name, isClosed]).toEqual([series, name, true]);
      if (name === "method") methods.add(label);
    }
  expect(methods).toContain("other");
}
