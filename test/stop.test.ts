import { afterAll, describe, expect, test } from "bun:test";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { connect as connectHttp2, constants } from "node:http2";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { errnoOf } from "../src/error-message.ts";
import { makeCertificate } from "./certificate.ts";
import { type Command, run, runTodo } from "./command.ts";
import { ask, POST_TODO } from "./http2.ts";
import { copyProgram } from "./patched-copy.ts";
import { Connection, openPaused, openSocket, portClosed, readToEnd, request, statusOf } from "./raw-http.ts";
import { follow } from "./sse.ts";

/** How many times the test under load shuts down a server. */
const ROUNDS = Number(process.env.TODO_TEST_STOP_ROUNDS ?? 5);
const JSON_TYPE = "Content-Type: application/json";
/** A server without pending requests exits before the time after which it would abort them. */
const ABORT_MS = 8000;

const folder = mkdtempSync(join(tmpdir(), "todo-stop-"));
afterAll(() => rmSync(folder, { recursive: true }));

const linesOf = (server: Command): { readonly msg: string; readonly time: number }[] =>
  server
    .stdout()
    .split("\n")
    .slice(0, -1)
    .map((line) => JSON.parse(line));

const messages = (server: Command): string[] => linesOf(server).map(({ msg }) => msg);

/** Returns when the server logged its messages, in milliseconds. This process may learn of them later. */
const times = (server: Command): number[] => linesOf(server).map(({ time }) => time);

/** Resolves when a server has logged that it is shutting down. From then on, it drains. */
async function stopping(server: Command): Promise<void> {
  while (!messages(server).includes("stopping")) await sleep(5);
}

const portOf = async (server: Command): Promise<number> => Number(new URL(await server.url).port);

describe("a server that shuts down", () => {
  test("does not wait for connections that have sent nothing or half a request", async () => {
    await using server = runTodo(["serve", "--port", "0"]);
    const port = await portOf(server);
    const whole = "GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n";
    for (const bytes of ["", "GET /li", "GET /livez HTTP/1.1\r\nHost: loc", whole, `${whole}GET /`])
      await openSocket(port, bytes);
    await sleep(100);
    server.kill("SIGTERM");
    expect(await server.exited).toBe(0);
    expect(messages(server)).toEqual(["listening", "stopping", "stopped"]);
    const [, stopping = 0, stopped = 0] = times(server);
    expect(stopped - stopping).toBeLessThan(ABORT_MS);
  });

  test.concurrent("responds to later requests on open connections with Connection: close", async () => {
    // Half of the time for which the upload may be idle.
    await using server = runTodo(["serve", "--port", "0", "--stop-delay", "4"]);
    const port = await portOf(server);
    const body = '{"title":"x"}';
    const head = `POST /api/todos HTTP/1.1\r\nHost: localhost\r\n${JSON_TYPE}\r\nContent-Length: 13\r\n\r\n`;
    const upload = await openSocket(port, head);
    const kept = await openSocket(port, "GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n");
    await once(kept, "data");
    server.kill("SIGTERM");
    await stopping(server);
    kept.write("GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n");
    expect(await readToEnd(kept)).toMatch(
      /^HTTP\/1\.1 503 [\s\S]*\r\nconnection: close\r\n[\s\S]*"code":"stopping"/i,
    );
    await portClosed(port);
    upload.write(body);
    expect(await readToEnd(upload)).toMatch(/^HTTP\/1\.1 201 [\s\S]*\r\nconnection: close\r\n/i);
    expect(await server.exited).toBe(0);
  });

  test("aborts requests that take longer than some seconds, logs that, and exits with 0", async () => {
    await using server = runTodo(["serve", "--port", "0", "--store", `sqlite:${join(folder, "cut.db")}`]);
    const port = await portOf(server);
    // More than the socket buffers hold.
    const headers = { "Content-Type": "application/json" };
    const body = JSON.stringify({ title: "\u{1f600}".repeat(120) });
    const url = `http://127.0.0.1:${port}/api/todos`;
    const posts = Array.from({ length: 20_000 }, () => fetch(url, { method: "POST", headers, body }));
    for (const { status } of await Promise.all(posts)) expect(status).toBe(201);
    const upload = await openSocket(port, request("POST /api/todos", [JSON_TYPE, "Content-Length: 99"], "{"));
    const reader = await openPaused(port, request("GET /api/todos"));
    server.kill("SIGTERM");
    expect(await server.exited).toBe(0);
    // The upload may have reached its own timeout just before.
    expect(server.stdout()).toMatch(
      /"requests":[12],"msg":"requests did not finish in time and were aborted"/,
    );
    upload.destroy();
    reader.destroy();
  });

  test.concurrent("serves new connections during its stop delay, is not ready, and closes each of them", async () => {
    await using server = runTodo(["serve", "--port", "0", "--stop-delay", "10"]);
    const url = await server.url;
    server.kill("SIGTERM");
    await stopping(server);
    const started = performance.now();
    const seen = async (path: string) => {
      const { status, headers } = await fetch(url + path);
      return [status, headers.get("connection")];
    };
    // A tenth of the delay, so that a busy machine can answer in time.
    while (performance.now() - started < 1000) {
      expect(await seen("/readyz")).toEqual([503, "close"]);
      expect(await seen("/api/todos")).toEqual([200, "close"]);
      await sleep(100);
    }
    expect(await server.exited).toBe(0);
    // A health check that fails while the server drains is expected, so the log has no line for it.
    expect(messages(server)).toEqual(["listening", "stopping", "stopped"]);
  });

  test.concurrent("keeps event streams open during its stop delay, then ends them", async () => {
    await using server = runTodo(["serve", "--port", "0", "--stop-delay", "10"]);
    const url = await server.url;
    await using subscriber = await follow(url);
    server.kill("SIGTERM");
    await stopping(server);
    const headers = { "Content-Type": "application/json" };
    await fetch(`${url}/api/todos`, { method: "POST", headers, body: '{"title":"x"}' });
    expect((await subscriber.rest()).map(({ type }) => type)).toEqual(["position", "created"]);
    expect(await server.exited).toBe(0);
  });

  test("logs why the store could not be closed, and exits with 1", async () => {
    const main = await copyProgram(join(folder, "copy"), "src/storage/sqlite/writer.worker.ts", [
      ["this.#database.close();", 'throw new Error("disk I/O error");'],
    ]);
    const store = `sqlite:${join(folder, "close.db")}`;
    await using server = run(["bin/bun", main, "serve", "--port", "0", "--store", store]);
    await server.url;
    server.kill("SIGTERM");
    expect(await server.exited).toBe(1);
    expect(messages(server)).toEqual(["listening", "stopping", "failed to close the store"]);
    expect(server.stdout()).toContain("disk I/O error");
    expect(server.stderr()).not.toContain("disk I/O error");
  });

  test.concurrent("uses all of its stop delay, even when that exceeds the time limit of a shutdown", async () => {
    await using server = runTodo(["serve", "--port", "0", "--stop-delay", "11"]);
    await server.url;
    server.kill("SIGTERM");
    expect(await server.exited).toBe(0);
    expect(messages(server)).toEqual(["listening", "stopping", "stopped"]);
  });

  test(
    `under load responds to all requests on open connections and loses no write, ${ROUNDS} times`,
    async () => {
      const path = join(folder, "load.db");
      const acknowledged = new Set<string>();
      const unanswered = new Set<string>();
      for (let round = 0; round < ROUNDS; round++) {
        const options = ["--store", `sqlite:${path}`, "--stop-delay", "1"];
        await using server = runTodo(["serve", "--port", "0", ...options]);
        const port = await portOf(server);
        const clients = Array.from({ length: 48 }, (_, index) =>
          load({ port, index, name: `${round}-${index}`, acknowledged, unanswered }),
        );
        const atStart = acknowledged.size;
        while (acknowledged.size < atStart + 100) await sleep(100 * Math.random());
        const before = acknowledged.size;
        server.kill("SIGTERM");
        expect(await server.exited).toBe(0);
        expect(await Promise.all(clients)).toEqual(clients.map(() => "refused"));
        // The server accepted writes after the signal too.
        expect(acknowledged.size).toBeGreaterThan(before);
      }
      await using server = runTodo(["serve", "--port", "0", "--store", `sqlite:${path}`]);
      const stored = new Set<string>();
      for (const { title } of JSON.parse(await (await fetch(`${await server.url}/api/todos`)).text()))
        stored.add(title);
      expect([...acknowledged].filter((title) => !stored.has(title))).toEqual([]);
      // A request that got no answer was not processed.
      expect([...unanswered].filter((title) => stored.has(title))).toEqual([]);
    },
    120_000 + 5000 * ROUNDS,
  );
});

describe("a server that shuts down, over HTTP/2", () => {
  test("responds to each stream or reports that it was not processed, 3 times", async () => {
    const { cert, key } = makeCertificate();
    const [certFile, keyFile] = [join(folder, "cert.pem"), join(folder, "key.pem")];
    await Promise.all([Bun.write(certFile, cert), Bun.write(keyFile, key)]);
    for (let round = 0; round < 3; round++) {
      const store = ["--store", `sqlite:${join(folder, `http2-${round}.db`)}`];
      const tls = ["--tls-cert", certFile, "--tls-key", keyFile];
      await using server = runTodo(["serve", "--port", "0", ...store, ...tls]);
      const url = await server.url;
      const acknowledged: string[] = [];
      const clients = Array.from({ length: 8 }, (_, index) => streams(url, cert, `${index}`, acknowledged));
      while (acknowledged.length < 100) await sleep(10);
      const before = acknowledged.length;
      server.kill("SIGTERM");
      expect(await server.exited).toBe(0);
      expect((await Promise.all(clients)).flat()).toEqual([]);
      expect(acknowledged.length).toBeGreaterThan(before);
      await using again = runTodo(["serve", "--port", "0", ...store]);
      const stored: { title: string }[] = JSON.parse(
        await (await fetch(`${await again.url}/api/todos`)).text(),
      );
      expect(stored.map(({ title }) => title).toSorted()).toEqual(acknowledged.toSorted());
    }
  });
});

/**
 * Keeps eight streams open on a connection until it closes. Each stream creates a to-do. Returns the streams that ended neither
 * with a response nor with REFUSED_STREAM, which says that the request was not processed (RFC 9113 §8.7).
 */
async function streams(url: string, ca: string, name: string, acknowledged: string[]): Promise<string[]> {
  const session = connectHttp2(url, { ca }).on("error", () => {});
  const reset: string[] = [];
  let sent = 0;
  let isOver = false;
  session.on("goaway", () => {
    isOver = true;
  });
  session.on("close", () => {
    isOver = true;
  });
  const one = async (): Promise<void> => {
    while (!isOver && !session.closed && !session.destroyed) {
      const title = `${name}-${sent++}`;
      const { status, isWhole, rst } = await ask(session, POST_TODO, JSON.stringify({ title }));
      if (status === 201 && isWhole) acknowledged.push(title);
      else if (rst !== constants.NGHTTP2_REFUSED_STREAM) reset.push(`${title}: ${status}, reset with ${rst}`);
    }
  };
  await once(session, "connect");
  await Promise.all(Array.from({ length: 8 }, one));
  session.destroy();
  return reset;
}

/** The pause between two requests on a connection. Clients without a pause here use a new connection for each request. */
const PAUSES_MS: readonly number[] = [0, 20, 1000];
/**
 * A client that sent nothing for as long as the server drains may send while its connection is closed (RFC 9112
 * §9.3.1). Half of the stop delay, so that a busy machine has the other half.
 */
const QUIET_MS = 500;

interface Load {
  readonly port: number;
  readonly index: number;
  /** The prefix of its titles. */
  readonly name: string;
  /** Titles. */
  readonly acknowledged: Set<string>;
  readonly unanswered: Set<string>;
}

/**
 * Sends requests one after the other until the server refuses connections. Half of the clients read, half write.
 * Resolves with "reset" as soon as a request on a connection that the server used before gets no complete response.
 * The first request on a connection may get none, because the listener may close while the connection arrives.
 */
async function load({ port, index, name, acknowledged, unanswered }: Load): Promise<"refused" | "reset"> {
  const isPost = index % 2 === 0;
  const ways = [...PAUSES_MS, undefined];
  const pauseMs = ways[(index >> 1) % ways.length];
  for (let sent = 0; ; ) {
    const opened = await Connection.open(port).catch(errnoOf);
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
