import { expect, test } from "bun:test";
import { connect } from "node:net";
import { type Command, run } from "./command.ts";
import { openDescriptors } from "./process-status.ts";
import { Connection } from "./raw-http.ts";
import { postTodo } from "./served-todos.ts";
import { serve, stop } from "./server.ts";
import { skipFor } from "./skip.ts";
import { whyMissing } from "./tools.ts";
import { until } from "./until.ts";

/** If set, each mode of slowhttptest uses this many connections. Otherwise all modes share one attack. */
const SLOW_CONNECTIONS = Number(process.env.TODO_TEST_SLOW_CONNECTIONS ?? 0);
const TODOS = 2000;
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
    await using server = serve();
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
    await stop(server);
  },
);
