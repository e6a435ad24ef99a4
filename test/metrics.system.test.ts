import { describe, expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { run } from "./command.ts";
import { scrape, serve, store } from "./server.ts";
import { skipFor } from "./skip.ts";
import { temporaryFolder } from "./temporary.ts";
import { whyMissing } from "./tools.ts";

interface Rules {
  readonly groups: readonly {
    readonly rules: readonly {
      readonly alert: string;
      readonly labels: { readonly severity: string };
      readonly annotations: Readonly<Record<string, string>>;
    }[];
  }[];
}

const DEPLOY = fileURLToPath(new URL("../deploy", import.meta.url));
const folder = temporaryFolder();

async function promtool(
  args: readonly string[],
  input = "",
): Promise<readonly [code: unknown, said: string]> {
  const tool = run(["promtool", ...args], {}, input);
  return [await tool.exited, tool.stdout() + tool.stderr()];
}

const rules: Rules = JSON.parse(
  JSON.stringify(Bun.YAML.parse(readFileSync(join(DEPLOY, "alerts.yml"), "utf8"))),
);
const ALERTS = rules.groups.flatMap((group) => group.rules);

// An alert, its labels, when it is silent, fires and is silent again, and its summary. Below it, series that replace those of a
// healthy service, with one value every 15 seconds.
const CASES = `
TodoServiceDown | severity=critical instance=a:1 | 21m 21m30s | a:1 has not answered for a minute
  up: 1x80 0x20
TodoServiceMissing | severity=critical | 29m 31m 42m | Prometheus has no target of the job todo-service
  up: 1x80 _x80 1x80
TodoRestartLoop | severity=warning instance=a:1 | 14m 16m 40m | a:1 has started 3 times within 15 minutes
  process_start_time_seconds: 100x40 200x10 300x10 400x200
TodoServiceFailing | severity=critical | 14m 24m | 2% of the requests fail with a 5xx status
  todo_http_requests_total{route="/",method="GET",status="200"}: 0+83x200
  todo_http_requests_total{route="/",method="GET",status="503"}: 0x40 0+2x160
TodoSlowRequests | severity=warning | 12m 22m 33m | 10% of the requests take longer than a second
  todo_http_request_duration_seconds_bucket{le="1"}: 0+1500x40 61350+1350x59 142500+1500x100
  todo_http_request_duration_seconds_count: 0+1500x240
TodoSlowWrites | severity=warning instance=a:1 | 12m 22m 33m | Writes of a:1 take 1.255s (median)
  todo_store_batch_duration_seconds_bucket{le="0.01"}: 0+15x40 600x60 615+15x100
# 60,000 successful reads per minute and 300 failing writes per minute: 0.5 % of all requests.
TodoWritesFailing | severity=critical operation=insert | 10m 16m | 100% of the insert operations fail
  todo_http_requests_total{route="/",method="GET",status="200"}: 0+15000x200
  todo_http_requests_total{route="/",method="POST",status="503"}: 0+75x200
  todo_store_operation_duration_seconds_count{operation="insert"}: 7x200
  todo_store_failures_total{operation="insert",reason="unavailable"}: 0x40 0+75x160
TodoWritesFailing | severity=critical operation=delete | 10m 16m | 100% of the delete operations fail
  todo_store_failures_total{operation="delete",reason="error"}: 0x40 0+1x160
TodoStoreNotWritable | severity=critical instance=a:1 | 11m 13m | The store of a:1 accepts no writes
  todo_store_writable: 1x40 0x160
TodoStoreNearlyFull | severity=warning instance=a:1 | 9m 11m | The store of a:1 is 95% full
  todo_store_todos: 10x20 95x80
TodoDiskFillingUp | severity=warning instance=a:1 | 34m 36m | The disk of a:1 has less than 10 % free, or will be full within a day
  todo_store_disk_free_bytes: 500000x20 90000x500
# 200 bytes every 15 seconds are more than the free space within a day.
TodoDiskFillingUp | severity=warning instance=a:1 | 29m 60m | The disk of a:1 has less than 10 % free, or will be full within a day
  todo_store_disk_free_bytes: 900000-200x1600
TodoPoolExhausted | severity=warning instance=a:1 | 14m 16m 27m | 9 queries of a:1 run or wait for a connection
  todo_store_queries: 3x40 9x60 3x100
TodoEventLoopLag | severity=warning instance=a:1 | 9m 11m | Requests to a:1 wait 750ms for the event loop (p99)
  nodejs_eventloop_lag_p99_seconds: 0.02x20 0.75x80
TodoCertificateExpiring | severity=warning instance=a:1 | 59m 2h | The certificate of a:1 expires in 9d 22h 0m 0s
  todo_certificate_expiry_timestamp_seconds: 864000x1600
TodoCertificateRejected | severity=warning instance=a:1 | 14m 16m | a:1 cannot use the new files of its certificate
  todo_certificate_files_rejected: 0x40 1x160
TodoLoginsThrottled | severity=warning | 9m 20m | 5 logins per second are rejected after too many wrong passwords
  todo_authentications_total{surface="basic",outcome="throttled"}: 0x20 0+75x180
TodoLoginsThrottled | severity=warning | 9m 20m | 4 logins per second are rejected after too many wrong passwords
  todo_authentications_total{surface="private",outcome="throttled"}: 0x20 0+60x180
TodoFileDescriptors | severity=warning instance=a:1 | 9m 11m | a:1 uses 90% of its file descriptors
  process_open_fds: 100x20 900x80
TodoBackupTooOld | severity=warning instance=a:1 | 2h10m 2h20m | The last backup of a:1 is 2h 20m 0s old
  todo_backup_interval_seconds: 3600x1600
TodoBackupFailing | severity=warning instance=a:1 | 10m 10m30s | A scheduled backup of a:1 has failed
  todo_backup_failures_total: 0x40 1x160
TodoBackupDiskFillingUp | severity=warning instance=a:1 | 39m 41m 62m | The disk of the backups of a:1 has 5% free
  todo_backup_disk_free_bytes: 500000x40 50000x200 500000x100
`
  .replaceAll(/^#.*\n/gm, "")
  .trim()
  .split(/\n(?=\w)/)
  .map((text) => {
    const [head = "", ...series] = text.split("\n");
    const [alert = "", labels = "", times = "", summary = ""] = head.split(" | ");
    return {
      alert,
      labels: Object.fromEntries(labels.split(" ").map((label) => label.split("="))),
      times: times.split(" "),
      summary,
      series: Object.fromEntries(series.map((line) => line.trim().split(": "))),
    };
  });

describe.skipIf(skipFor(whyMissing("promtool")))("promtool", () => {
  test("accepts the metrics", async () => {
    await using server = serve(["--metrics-port", "0"]);
    await store(server, 3);
    await fetch(`${await server.url}/api/whoami`);
    expect(await promtool(["check", "metrics"], await scrape(server))).toEqual([0, ""]);
  });

  test("accepts the configuration in deploy/", async () => {
    const [code, said] = await promtool(["check", "config", join(DEPLOY, "prometheus.yml")]);
    expect([code, said]).toEqual([0, expect.stringContaining(`${ALERTS.length} rules found`)]);
  });

  const HEALTHY: Readonly<Record<string, string>> = {
    up: "1x1600",
    'todo_http_requests_total{route="/",method="GET",status="200"}': "0+1500x1600",
    'todo_http_requests_total{route="/",method="POST",status="201"}': "0+15x1600",
    'todo_store_operation_duration_seconds_count{operation="insert"}': "0+15x1600",
    'todo_store_failures_total{operation="insert",reason="unavailable"}': "0x1600",
    'todo_store_failures_total{operation="insert",reason="full"}': "0+15x1600",
    process_start_time_seconds: "100x1600",
    'todo_http_request_duration_seconds_bucket{le="1"}': "0+1515x1600",
    todo_http_request_duration_seconds_count: "0+1515x1600",
    'todo_store_batch_duration_seconds_bucket{le="0.01"}': "0+15x1600",
    'todo_store_batch_duration_seconds_bucket{le="2.5"}': "0+15x1600",
    'todo_store_batch_duration_seconds_bucket{le="+Inf"}': "0+15x1600",
    todo_store_connections: "4x1600",
    todo_store_queries: "3x1600",
    todo_store_writable: "1x1600",
    todo_store_todos: "10x1600",
    todo_store_todos_limit: "100x1600",
    todo_store_disk_free_bytes: "500000x1600",
    todo_store_disk_size_bytes: "1000000x1600",
    nodejs_eventloop_lag_p99_seconds: "0.02x1600",
    todo_certificate_expiry_timestamp_seconds: `${60 * 86_400}x1600`,
    todo_certificate_files_rejected: "0x1600",
    'todo_authentications_total{surface="basic",outcome="throttled"}': "0x1600",
    'todo_authentications_total{surface="private",outcome="throttled"}': "0x1600",
    'todo_authentications_total{surface="bearer",outcome="throttled"}': "0+15x1600",
    // A backup is made every six hours; the healthy service made its last one at the start of the test.
    todo_backup_last_success_timestamp_seconds: "0x1600",
    todo_backup_interval_seconds: "21600x1600",
    todo_backup_failures_total: "0x1600",
    todo_backup_disk_free_bytes: "500000x1600",
    todo_backup_disk_size_bytes: "1000000x1600",
    process_open_fds: "100x1600",
    process_max_fds: "1000x1600",
  };

  const inputSeries = (changes: Readonly<Record<string, string>>) =>
    Object.entries({ ...HEALTHY, ...changes }).map(([series, values]) => {
      const [, name = "", labels = ""] = /^(\w+)(?:\{(.*)\})?$/.exec(series) ?? [];
      const own = ['job="todo-service"', 'instance="a:1"', ...(labels === "" ? [] : [labels])];
      return { series: `${name}{${own.join(",")}}`, values };
    });

  async function testRules(name: string, series: Readonly<Record<string, string>>, tests: readonly object[]) {
    const path = join(folder, `${name}.yml`);
    const rules = {
      rule_files: [join(DEPLOY, "alerts.yml")],
      evaluation_interval: "15s",
      tests: [{ interval: "15s", input_series: inputSeries(series), alert_rule_test: tests }],
    };
    // JSON is valid YAML.
    await writeFile(path, JSON.stringify(rules));
    return promtool(["test", "rules", path]);
  }

  test.each(CASES)("fires $alert at the right time, and not earlier: $summary", async (given) => {
    const { alert, labels, summary, series, times } = given;
    const { summary: _template, ...annotations } =
      ALERTS.find((rule) => rule.alert === alert)?.annotations ?? {};
    const fired = {
      exp_labels: { job: "todo-service", ...labels },
      exp_annotations: { summary, ...annotations },
    };
    // Silent, firing, and silent again.
    const tests = times.map((eval_time, index) => ({
      eval_time,
      alertname: alert,
      exp_alerts: index === 1 ? [fired] : [],
    }));
    const [code, said] = await testRules(`fires-${CASES.indexOf(given)}`, series, tests);
    expect([code, said]).toEqual([0, expect.stringContaining("SUCCESS")]);
  });

  test("fires no alert for a healthy service", async () => {
    const tests = ALERTS.map(({ alert }) => ({ eval_time: "6h", alertname: alert, exp_alerts: [] }));
    expect(await testRules("healthy", {}, tests)).toEqual([0, expect.stringContaining("SUCCESS")]);
  });

  test("fires no critical alert after a failure of 10 seconds", async () => {
    const failing = (rate: number) => `0x40 ${10 * rate}x160`;
    const series = {
      up: "1x40 0 1x160",
      'todo_http_requests_total{route="/",method="GET",status="503"}': failing(100),
      'todo_http_requests_total{route="/",method="POST",status="503"}': failing(1),
      'todo_store_failures_total{operation="insert",reason="unavailable"}': failing(1),
      // One write in two minutes, and its repetition.
      'todo_store_operation_duration_seconds_count{operation="delete"}': "0x39 1x8 2x160",
      'todo_store_failures_total{operation="delete",reason="error"}': "0x40 1x160",
      todo_store_writable: "1x40 0x2 1x160",
    };
    const critical = ALERTS.filter(({ labels }) => labels.severity === "critical");
    const times = Array.from({ length: 60 }, (_, quarter) => `${600 + quarter * 15}s`);
    const tests = critical.flatMap(({ alert }) =>
      times.map((eval_time) => ({ eval_time, alertname: alert, exp_alerts: [] })),
    );
    expect(critical.length).toBeGreaterThan(3);
    expect(await testRules("blip", series, tests)).toEqual([0, expect.stringContaining("SUCCESS")]);
  });

  test("has a case for each alert of deploy/", () => {
    const named = new Set(CASES.map(({ alert }) => alert));
    expect(ALERTS.map(({ alert }) => alert)).toEqual([...named]);
  });
});
