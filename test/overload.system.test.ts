import { expect, test } from "bun:test";
import { readFile, writeFile } from "node:fs/promises";
import { connect } from "node:net";
import { join } from "node:path";
import { type Command, run, runTodo } from "./command.ts";
import { openDescriptors } from "./process-status.ts";
import { Connection } from "./raw-http.ts";
import { postTodo } from "./served-todos.ts";
import { skipFor } from "./skip.ts";
import { temporaryFolder } from "./temporary.ts";
import { whyMissing } from "./tools.ts";
import { until } from "./until.ts";

const folder = temporaryFolder();

/** If set, each mode of slowhttptest uses this many connections. Otherwise all modes share one attack. */
const SLOW_CONNECTIONS = Number(process.env.TODO_TEST_SLOW_CONNECTIONS ?? 0);
const TODOS = 2000;
/** How often the cost of overload is measured at most, and how long a load lasts. */
const ROUNDS = 4;
const LOAD_SECONDS = 4;
/** To-dos per second of CPU under overload, as a share of those without. If a 503 cost as much as a to-do, it would be 0.5. */
const MIN_SHARE = 0.6;
/** The connections that this test keeps alive. */
const STRAGGLERS = 40;

/** Requests for many ranges at once. Their connections close with the response. */
const RANGES = ["-R"];
const MODES: Readonly<Record<string, readonly string[]>> = {
  "slow request heads": ["-H", "-i", "2"],
  "slow bodies": ["-B", "-i", "2", "-f", "application/json"],
  ranges: RANGES,
  "slow readers": ["-X", "-w", "10", "-y", "20", "-n", "5"],
};
const attacks: readonly (readonly [what: string, modes: readonly (readonly string[])[], each: number])[] =
  SLOW_CONNECTIONS > 0
    ? Object.entries(MODES).map(([what, mode]) => [what, [mode], SLOW_CONNECTIONS])
    : [["all of that at once", Object.values(MODES), 250]];

test.skipIf(skipFor(whyMissing("slowhttptest"))).each(attacks)(
  "other clients get responses during an attack with %s, and the server closes the connections of the attack",
  async (_what, modes, each) => {
    await using server = runTodo(["serve", "--port", "0"]);
    const url = await server.url;
    for (let at = 0; at < TODOS; at += 100)
      await Promise.all(Array.from({ length: 100 }, () => post(url, "x".repeat(120))));
    const before = await openDescriptors(server.pid);

    await using stack = new AsyncDisposableStack();
    for (const mode of modes) stack.use(attack(url, mode, each));
    // The server closes the first connections while the last ones are opened, so they are never all open.
    const stalled = modes.filter((mode) => mode !== RANGES).length * each;
    if (stalled > 0)
      await until(
        async () => (await openDescriptors(server.pid)) > before + stalled / 2,
        "the attack connects",
      );
    await probe(url);
    await until(
      async () => (await openDescriptors(server.pid)) <= before + STRAGGLERS,
      "the server closes them",
    );
  },
);

function attack(url: string, mode: readonly string[], connections: number): Command {
  // The attack lasts longer than the test, so that only the server closes its connections.
  const bounds = ["-c", connections, "-r", Math.ceil(connections / 8), "-l", 300, "-p", 3, "-v", 0].map(
    String,
  );
  return run(["slowhttptest", ...mode, ...bounds, "-u", `${url}/api/todos`]);
}

async function post(url: string, title: string): Promise<number> {
  const response = await postTodo(url, title);
  await response.arrayBuffer();
  return response.status;
}

/** Reads and writes with a few clients. How long that takes is measured in bench/. */
async function probe(url: string): Promise<void> {
  const client = async (): Promise<void> => {
    for (let round = 0; round < 100; round++) {
      expect(await post(url, "y")).toBe(201);
      const response = await fetch(`${url}/api/todos/1`);
      await response.arrayBuffer();
      expect(response.status).toBe(200);
    }
  };
  await Promise.all(Array.from({ length: 8 }, client));
}

test.skipIf(skipFor(whyMissing("h2load")))(
  "requests above the limit get 503, and throughput stays high during and after the overload",
  async () => {
    const body = join(folder, "body.json");
    await writeFile(body, '{"title":"x"}');
    const path = join(folder, "todos.db");
    const args = ["serve", "--port", "0", "--store", `sqlite:${path}`, "--max-requests", "500"];
    await using server = runTodo([...args, "--max-todos", "10000000"]);
    const url = `${await server.url}/api/todos`;
    let share = 0;
    for (let round = 0; round < ROUNDS && share < MIN_SHARE; round++) {
      const before = await h2load(server, url, body, 64);
      expect(before).toMatchObject({ others: 0, unavailable: 0 });
      // Each client may send an equal part of twice the peak rate.
      const over = await h2load(server, url, body, 2000, Math.ceil((2 * before.goodput) / 2000));
      expect(over.others).toBe(0);
      // Other programs may have slowed the first load down, so that the second one was not too much.
      if (over.unavailable === 0) continue;
      // The server may still process requests of connections that are already closed.
      await until(
        async () => (await postTogether(url, 64)).every((status) => status === 201),
        "the server has capacity again",
      );
      const after = await h2load(server, url, body, 64);
      expect(after).toMatchObject({ others: 0, unavailable: 0 });
      const loads = [before, over, after].map(
        ({ goodput, perCpuSecond }) => `${goodput | 0}/s (${perCpuSecond | 0} a CPU second)`,
      );
      process.stderr.write(`before, over, after: ${loads.join(", ")}\n`);
      // CPU time, because the server shares the processors with the load and with other programs.
      share = Math.min(over.perCpuSecond, after.perCpuSecond) / before.perCpuSecond;
    }
    expect(share).toBeGreaterThan(MIN_SHARE);
    // Each 503 was an overload. Other errors have their own log lines.
    expect(server.stdout()).toContain("overloaded");
    expect(server.stdout()).not.toContain("request failed");
  },
);

async function postTogether(url: string, count: number): Promise<number[]> {
  const base = url.replace(/\/api\/todos$/, "");
  return Promise.all(Array.from({ length: count }, () => post(base, "x")));
}

interface Load {
  /** Responses with a 2xx status per second. */
  readonly goodput: number;
  /** 2xx for each second of the server's CPU. */
  readonly perCpuSecond: number;
  readonly unavailable: number;
  /** Other responses, and requests without one. */
  readonly others: number;
}

/** Sends POSTs for some seconds. `rate` is the maximum number per second of each client. */
async function h2load(
  server: Command,
  url: string,
  body: string,
  clients: number,
  rate?: number,
): Promise<Load> {
  const rps = rate === undefined ? [] : ["--rps", String(rate)];
  const load = ["--h1", "-t", "1", "-c", String(clients), "-D", String(LOAD_SECONDS), ...rps];
  const command = run(["h2load", ...load, "-H", "Content-Type: application/json", "-d", body, url]);
  const before = await cpuSeconds(server);
  expect(await command.exited).toBe(0);
  const seconds = (await cpuSeconds(server)) - before;
  const counts = /^status codes: (\d+) 2xx, (\d+) 3xx, (\d+) 4xx, (\d+) 5xx$/m.exec(command.stdout());
  const [ok = 0, redirects = 0, refusals = 0, unavailable = 0] = (counts ?? []).slice(1).map(Number);
  const errored = Number(/ (\d+) errored/.exec(command.stdout())?.[1]);
  const others = redirects + refusals + errored;
  return { goodput: ok / LOAD_SECONDS, perCpuSecond: ok / seconds, unavailable, others };
}

/** Returns the CPU time from /proc/PID/stat (man 5 proc): fields 14 and 15, in hundredths of a second. */
async function cpuSeconds({ pid }: Command): Promise<number> {
  const words = (await readFile(`/proc/${pid}/stat`, "utf8")).replace(/^.*\) /s, "").split(" ");
  return (Number(words[11]) + Number(words[12])) / 100;
}

test.skipIf(skipFor(process.platform === "linux" ? undefined : "this is not Linux"))(
  "a server without free file descriptors serves its open connections, and accepts new ones later",
  async () => {
    const line = 'ulimit -n 64 && exec "$0" --no-env-file src/cli/main.ts serve --port 0';
    await using server = run(["sh", "-c", line, process.execPath]);
    const url = await server.url;
    const port = Number(new URL(url).port);
    using kept = await Connection.open(port);
    const asked = () => kept.exchange("GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n");
    expect(await asked()).toEndWith("ok\n");
    const others = Array.from({ length: 200 }, () => connect(port, "127.0.0.1"));
    for (const socket of others) socket.on("error", () => {});
    do expect(await asked()).toEndWith("ok\n");
    while ((await openDescriptors(server.pid)) < 64);
    expect(await asked()).toEndWith("ok\n");
    for (const socket of others) socket.destroy();
    expect(await (await fetch(`${url}/livez`)).text()).toBe("ok\n");
    server.kill("SIGTERM");
    expect(await server.exited).toBe(0);
  },
);
