/** Tests of a shutdown while many clients write. */
import { describe, expect, setDefaultTimeout, test } from "bun:test";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { getErrno } from "../src/error-message.ts";
import { runTodo } from "./command.ts";
import { freePort } from "./free-port.ts";
import { Connection, statusOf } from "./raw-http.ts";
import { serveFile, stop } from "./server.ts";
import { temporaryFolder } from "./temporary.ts";
import { until } from "./until.ts";

/** How many times the test under load shuts down a server. */
const ROUNDS = Number(process.env.TODO_TEST_STOP_ROUNDS ?? 5);
setDefaultTimeout(120_000 + 5000 * ROUNDS);
const JSON_TYPE = "Content-Type: application/json";

const folder = temporaryFolder();

describe("a server that shuts down", () => {
  test(`under load responds to all requests on open connections and loses no write, ${ROUNDS} times`, async () => {
    const path = join(folder, "load.db");
    const acknowledged = new Set<string>();
    const unanswered = new Set<string>();
    for (let round = 0; round < ROUNDS; round++) {
      const options = ["--store", `sqlite:${path}`, "--stop-delay", "1"];
      // Clients connect again after the shutdown, so no other test may get the port.
      const port = await freePort();
      await using server = runTodo(["serve", "--port", String(port), ...options]);
      await server.url;
      const clients = Array.from({ length: 48 }, (_, index) =>
        load({ port, index, name: `${round}-${index}`, acknowledged, unanswered }),
      );
      const atStart = acknowledged.size;
      await until(() => acknowledged.size >= atStart + 100, "the clients write");
      const before = acknowledged.size;
      await stop(server);
      expect(await Promise.all(clients)).toEqual(clients.map(() => "refused"));
      // The server accepted writes after the signal too.
      expect(acknowledged.size).toBeGreaterThan(before);
    }
    await using server = serveFile(path);
    const stored = new Set<string>();
    for (const { title } of JSON.parse(await (await fetch(`${await server.url}/api/todos`)).text()))
      stored.add(title);
    expect([...acknowledged].filter((title) => !stored.has(title))).toEqual([]);
    // A request that got no answer was not processed.
    expect([...unanswered].filter((title) => stored.has(title))).toEqual([]);
  });
});

/** The pause between two requests on a connection. Clients without a pause here use a new connection for each request. */
const PAUSES_MS: readonly number[] = [0, 20, 1000];
/** Half of the stop delay. A client that is silent for all of it may send while its connection is closed (RFC 9112 §9.3.1). */
const QUIET_MS = 500;

interface Load {
  readonly port: number;
  readonly index: number;
  readonly name: string;
  readonly acknowledged: Set<string>;
  readonly unanswered: Set<string>;
}

/** Resolves with "reset" if a request, but not the first one on a connection, gets no complete response. That one may come too late. */
async function load({ port, index, name, acknowledged, unanswered }: Load): Promise<"refused" | "reset"> {
  const isPost = index % 2 === 0;
  const ways = [...PAUSES_MS, undefined];
  const pauseMs = ways[(index >> 1) % ways.length];
  for (let sent = 0; ; ) {
    const opened = await Connection.open(port).catch(getErrno);
    if (opened === "ECONNREFUSED") return "refused";
    // The listener closed while this connection was being opened. No request was sent on it.
    if (opened === "ECONNRESET") continue;
    if (!(opened instanceof Connection)) throw new Error(`cannot connect: ${opened}`);
    using connection = opened;
    let answeredAt: number | undefined;
    while (!connection.isClosed) {
      const title = `${name}-${sent++}`;
      const body = JSON.stringify({ title });
      const isInUse = answeredAt !== undefined && performance.now() - answeredAt < QUIET_MS;
      const answer = await connection.exchange(
        isPost
          ? `POST /api/todos HTTP/1.1\r\nHost: localhost\r\n${JSON_TYPE}\r\nContent-Length: ${body.length}\r\n\r\n${body}`
          : "GET /api/todos?limit=1 HTTP/1.1\r\nHost: localhost\r\n\r\n",
      );
      answeredAt = performance.now();
      if (answer === undefined) {
        if (isInUse) return "reset";
        if (isPost) unanswered.add(title);
        break;
      }
      if (isPost && statusOf(answer) === 201) acknowledged.add(title);
      if (pauseMs === undefined || /^connection: close\r$/im.test(answer)) break;
      if (pauseMs > 0) await sleep(pauseMs * Math.random());
    }
  }
}
