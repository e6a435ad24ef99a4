import { describe, expect, test } from "bun:test";
import { readFile } from "node:fs/promises";
import { connect } from "node:net";
import { startBalancer, startCaddy, startHaproxy, startNginx } from "../deploy/topology.ts";
import { IDLE_SECONDS } from "../src/http/limits.ts";
import { TodoApi } from "../src/sdk/client.ts";
import { type Command, run, runTodo } from "./command.ts";
import { freePort } from "./free-port.ts";
import { fuzz } from "./fuzzer.ts";
import { startNameServer } from "./name-server.ts";
import { request, sendRaw, statusOf } from "./raw-http.ts";
import { postTodo, sendJson } from "./served-todos.ts";
import { kill, stop } from "./server.ts";
import { skipFor } from "./skip.ts";
import { follow, soon } from "./sse.ts";
import { whyMissing } from "./tools.ts";
import { until } from "./until.ts";

const SEED = 20_261_122;
const MUTANTS = 2_000;
const CLIENTS = 4;
const MIN_RESPONSES = 100;
const MIN_WHILE_RESTARTING = 3000;
/** The number of connections that the system accepts for a Bun server that does not accept any itself. */
const BACKLOG = 513;
/** More than a proxy needs to notice a silent replica, and less than the 60 seconds that nginx waits by default. */
const PATIENCE_MS = 30_000;

/** Three replicas, each with a store of its own, and a proxy in front of them. */
interface Site {
  readonly url: string;
  readonly replicas: readonly [Command, Command, Command];
}

type StartReplica = (stack: AsyncDisposableStack, host: string, port: string) => Promise<Command>;

const startReplica: StartReplica = async (stack, host, port) => {
  const replica = stack.use(runTodo(["serve", "--host", host, "--port", port]));
  await replica.url;
  return replica;
};

/** Starts a server whose host does not answer new connections, as if it had lost its power. */
const startSilentReplica: StartReplica = async (stack, host, port) => {
  const script = `const server = require("node:net").createServer().listen(${port}, "${host}", () =>
    console.log(JSON.stringify({ url: "http://${host}:" + server.address().port })));`;
  const replica = stack.use(run([process.execPath, "-e", script]));
  const { port: listening } = new URL(await replica.url);
  replica.kill("SIGSTOP");
  let connected = 0;
  for (let opened = 0; opened < BACKLOG; opened++) {
    const socket = connect(Number(listening), host, () => connected++);
    socket.on("error", () => {});
    stack.defer(() => void socket.destroy());
  }
  await until(() => connected === BACKLOG, "the queue of new connections is full");
  return replica;
};

function behind(startProxy: typeof startCaddy) {
  return async (stack: AsyncDisposableStack, startThird = startReplica): Promise<Site> => {
    const replicas = await Promise.all([
      startReplica(stack, "127.0.0.1", "0"),
      startReplica(stack, "127.0.0.1", "0"),
      startThird(stack, "127.0.0.1", "0"),
    ]);
    return { url: await startProxy(stack, await Promise.all(replicas.map(({ url }) => url))), replicas };
  };
}

/** Starts nginx as in compose.yaml, where a name server lists the replicas, and all of them use one port. */
async function behindComposeNginx(stack: AsyncDisposableStack, startThird = startReplica): Promise<Site> {
  const hosts = ["127.0.0.2", "127.0.0.3", "127.0.0.4"] as const;
  const first = await startReplica(stack, hosts[0], "0");
  const { port } = new URL(await first.url);
  const others = [startReplica(stack, hosts[1], port), startThird(stack, hosts[2], port)] as const;
  const replicas: Site["replicas"] = [first, ...(await Promise.all(others))];
  const nameServer = await startNameServer(stack, hosts);
  const site = await readDeploy("nginx-compose.conf");
  const url = await startNginx(stack, "http", (listening) =>
    site
      .replace("listen 80;", `listen 127.0.0.1:${listening};`)
      .replace("127.0.0.11", nameServer)
      .replace("replica:3000", `replica:${port}`),
  );
  return { url, replicas };
}

async function statusOfNext(url: string, turn: number): Promise<number> {
  const answer = turn % 2 === 0 ? fetch(`${url}/api/todos?limit=1`) : postTodo(url, `${turn}`);
  const response = await soon(answer, () => `the response of ${url}`, PATIENCE_MS);
  await response.arrayBuffer();
  return response.status;
}

const whyNoNginx = whyMissing("nginx");
const whyNoCaddy = whyMissing("caddy");
const whyNoLinux =
  process.platform === "linux" ? undefined : "addresses and queues of loopback differ from those of Linux";

/** Requests that a proxy sends to another replica when the first one is dead, and how many of 1,000 others get a 502. */
const READS_AND_WRITES = { requestStep: 1, statuses: new Set([200, 201]), maxFailuresPerThousand: 0 };
/** Caddy 2.6 fails to repeat a request with a body ("invalid Read on closed Body"). */
const READS = { requestStep: 2, statuses: new Set([200]), maxFailuresPerThousand: 10 };

describe.each([
  ["nginx", whyNoNginx, behind(startBalancer), READS_AND_WRITES],
  ["nginx of compose.yaml", whyNoNginx ?? whyNoLinux, behindComposeNginx, READS_AND_WRITES],
  ["Caddy", whyNoCaddy, behind(startCaddy), READS],
] as const)("%s", (_, whyNot, start, repeated) => {
  test.skipIf(skipFor(whyNot))(`responds to every client during ${MUTANTS} mutated requests`, async () => {
    await using stack = new AsyncDisposableStack();
    const { url } = await start(stack);
    const port = Number(new URL(url).port);

    const attack = fuzz(port, MUTANTS, { seed: SEED });
    let isOver = false;
    const statuses: number[] = [];
    const clients = Array.from({ length: CLIENTS }, async () => {
      for (let turn = 0; !isOver || turn < MIN_RESPONSES; turn++)
        statuses.push(await statusOfNext(url, turn));
    });
    const mutantStatuses = await attack;
    isOver = true;
    await Promise.all(clients);

    const failures = statuses.filter((status) => status === 502);
    expect(failures.length).toBeLessThanOrEqual((statuses.length * repeated.maxFailuresPerThousand) / 1_000);
    expect(new Set(statuses.filter((status) => status !== 502))).toEqual(new Set([200, 201]));
    // Mutants that never reach a replica would prove nothing.
    const reached = ["200", "201", "400", "404", "405", "422"];
    expect([...mutantStatuses.keys()]).toEqual(expect.arrayContaining(reached));
  });

  test.skipIf(skipFor(whyNot))("responds to every client after requests with unknown methods", async () => {
    await using stack = new AsyncDisposableStack();
    const { url, replicas } = await start(stack);
    for (let turn = 0; turn < 2 * replicas.length; turn++) {
      const { text } = await sendRaw(Number(new URL(url).port), request("FOO /api/todos"), PATIENCE_MS);
      expect(statusOf(text)).toBeGreaterThanOrEqual(500);
      expect(await statusOfNext(url, turn)).toBeLessThan(300);
    }
  });

  test.skipIf(skipFor(whyNot))("serves clients without failed reads when a replica is killed", async () => {
    await using stack = new AsyncDisposableStack();
    const { url, replicas } = await start(stack);
    const read = async (): Promise<number> => (await fetch(`${url}/api/todos`)).status;
    let isKilled = false;
    const readers = Array.from({ length: CLIENTS }, async () => {
      const statuses: number[] = [];
      for (let left = MIN_RESPONSES; left > 0; left -= isKilled ? 1 : 0) statuses.push(await read());
      return statuses;
    });
    await kill(replicas[1]);
    isKilled = true;
    expect(new Set((await Promise.all(readers)).flat())).toEqual(new Set([200]));
    const statuses = new Set<number>();
    for (let turn = 0; turn < MIN_RESPONSES; turn++)
      statuses.add(await statusOfNext(url, turn * repeated.requestStep));
    expect(statuses).toEqual(repeated.statuses);
  });

  test.skipIf(skipFor(whyNot ?? whyNoLinux))("fails no reads while a host does not respond", async () => {
    await using stack = new AsyncDisposableStack();
    const { url, replicas } = await start(stack, startSilentReplica);
    const statuses = new Set<number>();
    for (let turn = 0; turn < 4 * replicas.length; turn++)
      statuses.add(await statusOfNext(url, turn * repeated.requestStep));
    expect(statuses).toEqual(repeated.statuses);
  });
});

// Both wait for two heartbeats.
test.concurrent.skipIf(skipFor(whyNoNginx)).each([
  ["nginx.conf", behind(startBalancer)],
  ["nginx-compose.conf", behindComposeNginx],
])("%s serves reads while a replica is frozen, and keeps event streams open", async (_name, start) => {
  await using stack = new AsyncDisposableStack();
  const { url, replicas } = await start(stack);
  await using events = await follow(url);
  // The stream may be that of the frozen replica, which the proxy closes.
  events.rest().catch(() => {});
  await until(() => events.comments() >= 2, "an event stream outlives the timeout");
  replicas[2].kill("SIGSTOP");
  const signal = AbortSignal.timeout(50_000);
  const reads = Array.from({ length: 6 }, () => fetch(`${url}/api/todos`, { signal }));
  for (const response of await Promise.all(reads)) expect(response.status).toBe(200);
});

test.skipIf(skipFor(whyNoNginx))("nginx keeps headers usable with gzip and a path prefix", async () => {
  await using stack = new AsyncDisposableStack();
  const service = await (await startReplica(stack, "127.0.0.1", "0")).url;
  const location = (path: string) => `location ${path} { proxy_pass ${service}/; proxy_http_version 1.1; }`;
  const gzip = "gzip on; gzip_proxied any; gzip_types application/json; gzip_min_length 1;";
  const proxy = await startNginx(
    stack,
    "http",
    (port) => `server { listen 127.0.0.1:${port}; ${gzip} ${location("/")} ${location("/below/")} }`,
  );
  const url = `${proxy}/below`;
  expect(await statusOfNext(url, 1)).toBe(201);
  const post = await postTodo(url, "second");
  const created = new URL(post.headers.get("location") ?? "", post.url);
  expect(await (await fetch(created)).json()).toMatchObject({ title: "second" });

  const page = await fetch(`${url}/api/todos?limit=1`);
  expect(page.headers.get("content-encoding")).toBe("gzip");
  const next = new URL(/<(.+)>/.exec(page.headers.get("link") ?? "")?.[1] ?? "", page.url);
  expect(await (await fetch(next)).json()).toMatchObject([{ title: "second" }]);

  const etag = page.headers.get("etag") ?? "";
  const position = page.headers.get("todo-position") ?? "";
  expect(etag).toBe(`W/"${position}"`);
  const headers = { "If-None-Match": etag };
  expect((await fetch(`${url}/api/todos`, { headers })).status).toBe(304);
  for (const from of [{ since: etag }, { since: `${position}-gzip` }, { lastEventId: etag }]) {
    await using events = await follow(url, from);
    await sendJson(url, "PATCH /api/todos/2", { done: from.since === etag });
    expect((await events.take(1)).at(0)?.type).toBe("updated");
  }

  const api = new TodoApi({ baseUrl: url });
  const direct = await new TodoApi({ baseUrl: service }).list();
  expect(await api.list()).toEqual(direct);
  const list = api.follow({ from: direct });
  const stop = list.subscribe(() => {});
  await list.setDone("2", true);
  await until(() => list.getState().position !== direct.position, "the event of the change");
  stop();
  expect(list.getState().todos).toEqual((await api.list()).todos);
});

test.skipIf(skipFor(whyNoNginx))("nginx still uses replicas that closed connections", async () => {
  await using stack = new AsyncDisposableStack();
  const replicas = [1, 2, 3].map(() => startClosingReplica(stack));
  const url = await startBalancer(stack, replicas);
  for (let turn = 0; turn < 2 * replicas.length; turn++) {
    expect((await fetch(url, { method: "POST" })).status).toBe(502);
    expect((await fetch(url)).status).toBe(200);
  }
});

test.skipIf(skipFor(whyMissing("haproxy")))("haproxy: trailers do not fail requests of others", async () => {
  await using stack = new AsyncDisposableStack();
  const { url } = await behind(startHaproxy)(stack);
  const port = Number(new URL(url).port);
  const withTrailers = request(
    "POST /api/todos",
    ["Content-Type: application/json", "Transfer-Encoding: chunked"],
    'd\r\n{"title":"x"}\r\n0\r\nX-Trailer: 1\r\n\r\n',
  );
  const failures: number[] = [];
  let sent = 0;
  const senders = Array.from({ length: CLIENTS }, async () => {
    while (sent++ < MUTANTS) expect(statusOf((await sendRaw(port, withTrailers)).text)).toBe(201);
  });
  const others = Array.from({ length: 2 * CLIENTS }, async () => {
    for (let turn = 0; sent < MUTANTS; turn++) {
      const status = await statusOfNext(url, 2 * turn);
      if (status !== 200) failures.push(status);
    }
  });
  await Promise.all([...senders, ...others]);
  expect(failures).toEqual([]);
});

const readDeploy = (name: string): Promise<string> =>
  readFile(new URL(`../deploy/${name}`, import.meta.url), "utf8");

async function stopDelay(): Promise<string> {
  const delay = /^Environment=TODO_STOP_DELAY=(\d+)$/m.exec(await readDeploy("todo-service@.service"))?.[1];
  if (delay === undefined) throw new Error("the unit sets no TODO_STOP_DELAY");
  return delay;
}

test("nginx.conf closes an idle connection before a replica closes it, also one that stops", async () => {
  const seconds = Number(/^\s*keepalive_timeout (\d+)s;$/m.exec(await readDeploy("nginx.conf"))?.[1]);
  expect(seconds).toBeLessThan(Number(await stopDelay()));
  // The runtime closes an idle connection up to two seconds early.
  expect(seconds).toBeLessThan(IDLE_SECONDS - 2);
});

describe.each([
  ["nginx", whyNoNginx, startBalancer],
  ["Caddy", whyNoCaddy, startCaddy],
  ["haproxy", whyMissing("haproxy"), startHaproxy],
] as const)("behind %s", (_name, whyNot, startProxy) => {
  test.skipIf(skipFor(whyNot))("no request fails while each of three replicas restarts", async () => {
    await using stack = new AsyncDisposableStack();
    const delay = { TODO_STOP_DELAY: await stopDelay() };
    const start = async (port: number): Promise<Command> => {
      const replica = stack.use(runTodo(["serve", "--port", String(port)], delay));
      await replica.url;
      return replica;
    };
    const ports = await Promise.all([freePort(), freePort(), freePort()]);
    const replicas = await Promise.all(ports.map(start));
    const url = await startProxy(stack, await Promise.all(replicas.map((replica) => replica.url)));
    const statuses: unknown[] = [];
    let isOver = false;
    const clients = Array.from({ length: 4 * CLIENTS }, async () => {
      while (!isOver) {
        statuses.push(await statusOfNext(url, statuses.length).catch((error: Error) => error.message));
        // So that the load stays small.
        await Bun.sleep(20);
      }
    });
    for (const [index, replica] of replicas.entries()) {
      await stop(replica);
      await start(ports[index] ?? 0);
    }
    await until(() => statuses.length >= MIN_WHILE_RESTARTING, "enough requests are sent");
    isOver = true;
    await Promise.all(clients);
    expect(new Set(statuses)).toEqual(new Set([200, 201]));
  });
});

/** Starts a server that answers each GET, and closes the connection of any other request. Returns its URL. */
function startClosingReplica(stack: AsyncDisposableStack): string {
  const server = Bun.listen({
    hostname: "127.0.0.1",
    port: 0,
    socket: {
      data(socket, bytes) {
        if (bytes.toString("latin1").startsWith("GET "))
          socket.end("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
        else socket.terminate();
      },
    },
  });
  stack.defer(() => server.stop(true));
  return `http://127.0.0.1:${server.port}`;
}
