import { afterAll, describe, expect, test } from "bun:test";
import { mkdtempSync } from "node:fs";
import { rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { type Command, run, runTodo } from "./command.ts";
import { skipFor } from "./skip.ts";
import { whyMissing } from "./tools.ts";

const DEPLOY = fileURLToPath(new URL("../deploy", import.meta.url));
const folder = mkdtempSync(join(tmpdir(), "todo-promtool-"));
afterAll(() => rm(folder, { recursive: true }));

const serve = (...args: readonly string[]): Command => runTodo(["serve", "--port", "0", ...args]);

/** Returns the URL of a server's metrics, from its log. */
async function metricsUrl(server: Command): Promise<string> {
  await server.url;
  return /"metricsUrl":"([^"]+)"/.exec(server.stdout())?.[1] ?? "";
}

async function scrape(server: Command): Promise<string> {
  return (await fetch(await metricsUrl(server))).text();
}

async function store(server: Command, todos: number): Promise<void> {
  const url = await server.url;
  const headers = { "Content-Type": "application/json" };
  const sent = Array.from({ length: todos }, () =>
    fetch(`${url}/api/todos`, { method: "POST", headers, body: '{"title":"x"}' }),
  );
  for (const { status } of await Promise.all(sent)) expect(status).toBe(201);
}

async function promtool(
  args: readonly string[],
  input = "",
): Promise<readonly [code: unknown, said: string]> {
  const tool = run(["promtool", ...args], {}, input);
  return [await tool.exited, tool.stdout() + tool.stderr()];
}

describe.skipIf(skipFor(whyMissing("promtool")))("promtool", () => {
  test("accepts the metrics", async () => {
    await using server = serve("--metrics-port", "0");
    await store(server, 3);
    await fetch(`${await server.url}/api/whoami`);
    expect(await promtool(["check", "metrics"], await scrape(server))).toEqual([0, ""]);
  });

  test("accepts the configuration in deploy/", async () => {
    const [code, said] = await promtool(["check", "config", join(DEPLOY, "prometheus.yml")]);
    expect([code, said]).toEqual([0, expect.stringContaining("3 rules found")]);
  });

  test("fires each alert of deploy/ in time, and not before", async () => {
    const series = (name: string, values: string, labels = "") => ({
      series: `${name}{job="todo-service",instance="a:1"${labels}}`,
      values,
    });
    const requests = (status: number, values: string) =>
      series("todo_http_requests_total", values, `,route="/",method="GET",status="${status}"`);
    const alert = (alertname: string, before: string, after: string, labels: object, annotations: object) => [
      { eval_time: before, alertname, exp_alerts: [] },
      {
        eval_time: after,
        alertname,
        exp_alerts: [{ exp_labels: { job: "todo-service", ...labels }, exp_annotations: annotations }],
      },
    ];
    const ofOne = { instance: "a:1" };
    const path = join(folder, "alerts-test.yml");
    const rules = {
      rule_files: [join(DEPLOY, "alerts.yml")],
      evaluation_interval: "15s",
      tests: [
        {
          interval: "15s",
          input_series: [
            series("up", "1x80 0x20"),
            requests(200, "0+98x100"),
            requests(503, "0x40 0+2x60"),
            series("todo_store_todos", "10x20 95x80"),
            series("todo_store_todos_limit", "100x100"),
          ],
          alert_rule_test: [
            ...alert(
              "TodoServiceDown",
              "21m",
              "21m30s",
              { ...ofOne, severity: "critical" },
              {
                summary: "a:1 has not answered for a minute",
              },
            ),
            ...alert(
              "TodoServiceFailing",
              "14m",
              "24m",
              { severity: "critical" },
              {
                summary: "2% of the requests fail by the service's own fault",
                description:
                  "todo_store_failures_total says whether it is the store; the log has each of them.",
              },
            ),
            ...alert(
              "TodoStoreNearlyFull",
              "9m",
              "11m",
              { ...ofOne, severity: "warning" },
              {
                summary: "The store of a:1 is 95% full",
                description: "At 100 % inserts are answered 507: delete to-dos, or raise TODO_MAX_TODOS.",
              },
            ),
          ],
        },
      ],
    };
    // JSON is valid YAML.
    await writeFile(path, JSON.stringify(rules));
    expect(await promtool(["test", "rules", path])).toEqual([0, expect.stringContaining("SUCCESS")]);
  });
});
