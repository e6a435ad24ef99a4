import { expect, test } from "bun:test";
import { setTimeout as sleep } from "node:timers/promises";
import { startBalancer } from "../deploy/topology.ts";
import { runTodo } from "./command.ts";
import { skipFor } from "./skip.ts";
import { whyMissing } from "./tools.ts";

/** How many requests reuse a connection that has been quiet for about as long as one may be. */
const REUSES = Number(process.env.TODO_TEST_REUSES ?? 300);
/** So many at a time, as far as nginx has connections. */
const CLIENTS = Math.min(REUSES / 3, 200);
/** Around the proxy's time for a quiet connection, and the service's own of 8 to 12 seconds. */
const PAUSES_MS: readonly number[] = [4950, 11_950, 5000, 4900, 5050, 7950, 4950, 5000];

test.skipIf(skipFor(whyMissing("nginx")))(
  `connections that nginx keeps alive are used ${REUSES} times around their end without an error`,
  async () => {
    await using stack = new AsyncDisposableStack();
    const url = await stack.use(runTodo(["serve", "--port", "0"])).url;
    // All of them come from one address here.
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
