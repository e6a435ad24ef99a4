/** Rates and latencies under wrk, which measures for whole seconds. */
import type { RequestSpec } from "./requests.ts";
import { type ServerProcess, track } from "./server-process.ts";

export interface WrkResult {
  readonly requests: number;
  readonly perSecond: number;
  /** The 99th percentile of the latency, in microseconds. */
  readonly p99: number;
}

/** Sends one request repeatedly for whole `seconds`. Throws on any status above 399 and any socket error. */
export async function measure(
  server: ServerProcess,
  { method, path, headers, body }: RequestSpec,
  seconds: number,
  connections: number,
): Promise<WrkResult> {
  const headerFlags = Object.entries(headers).flatMap(([name, value]) => ["-H", `${name}: ${value}`]);
  const url = `http://127.0.0.1:${server.port}${path}`;
  const script = `${import.meta.dir}/wrk.lua`;
  const wrk = Bun.spawn(
    ["wrk", "-t1", `-c${connections}`, `-d${seconds}s`, "-s", script, ...headerFlags, url],
    {
      env: { BENCH_METHOD: method, ...(body === undefined ? {} : { BENCH_BODY: body }) },
      stdio: ["ignore", "pipe", "inherit"],
    },
  );
  track(wrk);
  const output = await new Response(wrk.stdout).text();

  const line = output.split("\n").find((text) => text.startsWith("{"));
  if ((await wrk.exited) !== 0 || line === undefined) throw new Error(`wrk failed on ${url}: ${output}`);
  const { requests, microseconds, p99, ...failures }: Record<string, number> = JSON.parse(line);
  if (!requests || !microseconds || p99 === undefined || Object.values(failures).some((count) => count > 0)) {
    throw new Error(`${method} ${url} failed: ${line}`);
  }
  return {
    requests,
    perSecond: (requests / microseconds) * 1e6,
    p99,
  };
}
