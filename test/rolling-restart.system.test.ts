import { describe, expect, test } from "bun:test";
import { readFile } from "node:fs/promises";
import { startBalancer, startCaddy, startHaproxy } from "../deploy/topology.ts";
import { IDLE_SECONDS } from "../src/http/limits.ts";
import { type Command, runTodo } from "./command.ts";
import { freePort } from "./free-port.ts";
import { skipFor } from "./skip.ts";
import { whyMissing } from "./tools.ts";
import { until } from "./until.ts";

const REPLICAS = 3;
const MIN_REQUESTS = Number(process.env.TODO_TEST_ROLLING_REQUESTS ?? 3000);
const CLIENTS = 16;
/** Between two requests of a client, so that the load stays small. */
const PAUSE_MS = 20;

/** Returns the delay that the unit of the replicas sets. */
async function stopDelay(): Promise<string> {
  const unit = await readFile(new URL("../deploy/todo-service@.service", import.meta.url), "utf8");
  const delay = /^Environment=TODO_STOP_DELAY=(\d+)$/m.exec(unit)?.[1];
  if (delay === undefined) throw new Error("the unit sets no TODO_STOP_DELAY");
  return delay;
}

async function send(url: string, turn: number): Promise<string> {
  const post = {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ title: `${turn}` }),
  };
  try {
    const response = await fetch(
      `${url}/api/todos${turn % 2 === 0 ? "?limit=1" : ""}`,
      turn % 2 === 0 ? {} : post,
    );
    await response.arrayBuffer();
    return response.ok ? "ok" : `${turn % 2 === 0 ? "GET" : "POST"} ${response.status}`;
  } catch (error) {
    return `${turn % 2 === 0 ? "GET" : "POST"} ${error}`;
  }
}

test("nginx.conf closes an idle connection before a replica closes it, also one that stops", async () => {
  const site = await readFile(new URL("../deploy/nginx.conf", import.meta.url), "utf8");
  const seconds = Number(/^\s*keepalive_timeout (\d+)s;$/m.exec(site)?.[1]);
  expect(seconds).toBeLessThan(Number(await stopDelay()));
  // The runtime closes an idle connection up to two seconds early.
  expect(seconds).toBeLessThan(IDLE_SECONDS - 2);
});

describe.each([
  ["nginx", whyMissing("nginx"), startBalancer],
  ["Caddy", whyMissing("caddy"), startCaddy],
  ["haproxy", whyMissing("haproxy"), startHaproxy],
] as const)("behind %s", (_name, whyNot, startProxy) => {
  test.skipIf(skipFor(whyNot))(`no request fails while each of ${REPLICAS} replicas restarts`, async () => {
    await using stack = new AsyncDisposableStack();
    const delay = await stopDelay();
    const start = async (port: number): Promise<Command> => {
      const replica = stack.use(runTodo(["serve", "--port", String(port)], { TODO_STOP_DELAY: delay }));
      await replica.url;
      return replica;
    };
    const ports = await Promise.all(Array.from({ length: REPLICAS }, freePort));
    const replicas = await Promise.all(ports.map(start));
    const url = await startProxy(stack, await Promise.all(replicas.map((replica) => replica.url)));
    const results = new Map<string, number>();
    let turn = 0;
    let isOver = false;
    const clients = Array.from({ length: CLIENTS }, async () => {
      while (!isOver) {
        const result = await send(url, turn++);
        results.set(result, (results.get(result) ?? 0) + 1);
        await Bun.sleep(PAUSE_MS);
      }
    });
    for (const [index, replica] of replicas.entries()) {
      replica.kill("SIGTERM");
      expect(await replica.exited).toBe(0);
      await start(ports[index] ?? 0);
    }
    await until(() => turn >= MIN_REQUESTS, "enough requests are sent");
    isOver = true;
    await Promise.all(clients);
    const { ok = 0, ...failures } = Object.fromEntries(results);
    expect(failures).toEqual({});
    expect(ok).toBeGreaterThanOrEqual(MIN_REQUESTS);
  });
});
