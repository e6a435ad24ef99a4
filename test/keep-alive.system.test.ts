import { expect, test } from "bun:test";
import { setTimeout as sleep } from "node:timers/promises";
import { startBalancer } from "../deploy/topology.ts";
import { runTodo } from "./command.ts";
import { skipFor } from "./skip.ts";
import { whyMissing } from "./tools.ts";

/** The number of requests that reuse a connection at about the end of its idle time. */
const REUSES = Number(process.env.TODO_TEST_REUSES ?? 300);
/** The number of concurrent requests, which nginx's connections limit. */
const CLIENTS = Math.min(REUSES / 3, 200);
/** Pauses around the proxy's idle timeout, and around the service's own of 8 to 12 seconds. */
const PAUSES_MS: readonly number[] = [4950, 11_950, 5000, 4900, 5050, 7950, 4950, 5000];

test.skipIf(skipFor(whyMissing("nginx")))(
  `nginx reuses connections ${REUSES} times around their idle timeout without an error`,
  async () => {
    await using stack = new AsyncDisposableStack();
    const url = await stack.use(runTodo(["serve", "--port", "0"])).url;
    // All requests come from one address here.
    const proxied = await startBalancer(stack, [url, url, url], {
      changed: (site) =>
        site
          .replace(/keepalive \d+;/, "keepalive 256;")
          .replace(/limit_conn addresses \d+/, "limit_conn addresses 1000"),
    });
    const body = '{"title":"x"}';
    const headers = { "Content-Type": "application/json" };
    const ask = async (isPost: boolean): Promise<number> => {
      const init = isPost ? { method: "POST", headers, body } : {};
      const response = await fetch(`${proxied}/api/todos${isPost ? "" : "?limit=1"}`, {
        ...init,
        keepalive: false,
      });
      await response.arrayBuffer();
      return response.status;
    };
    const statuses: number[] = [];
    for (let wave = 0; statuses.length < REUSES + CLIENTS; wave++) {
      const asked = Array.from({ length: CLIENTS }, async (_, index) => {
        await sleep(100 * Math.random());
        return ask(index % 2 === 0);
      });
      statuses.push(...(await Promise.all(asked)));
      await sleep(PAUSES_MS[wave % PAUSES_MS.length] ?? 0);
    }
    const counts = Object.fromEntries(
      new Set(statuses).values().map((status) => [status, statuses.filter((one) => one === status).length]),
    );
    expect(counts).toEqual({ 200: statuses.length / 2, 201: statuses.length / 2 });
  },
  120_000 + REUSES * 40,
);
