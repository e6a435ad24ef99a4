import { afterAll, describe, expect, test } from "bun:test";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { connect as connectHttp2, constants } from "node:http2";
import { connect, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { makeCertificate } from "./certificate.ts";
import { type Command, runTodo } from "./command.ts";
import { ask, POST_TODO } from "./http2.ts";
import { request, statusOf } from "./message.ts";

/** How many times a server is stopped under load. */
const ROUNDS = Number(process.env.TODO_TEST_STOP_ROUNDS ?? 5);
const JSON_TYPE = "Content-Type: application/json";

const folder = mkdtempSync(join(tmpdir(), "todo-stop-"));
afterAll(() => rmSync(folder, { recursive: true }));

const messages = (server: Command): string[] =>
  server
    .stdout()
    .split("\n")
    .slice(0, -1)
    .map((line) => JSON.parse(line).msg);

const portOf = async (server: Command): Promise<number> => Number(new URL(await server.url).port);

/** Sends bytes on a connection of its own. */
async function opened(port: number, bytes: string): Promise<Socket> {
  const socket = connect(port, "127.0.0.1");
  socket.on("error", () => {});
  await once(socket, "connect");
  socket.write(bytes);
  return socket;
}

const rest = async (socket: Socket): Promise<string> =>
  Buffer.concat(await Array.fromAsync<Buffer>(socket)).toString("latin1");

describe("a server that is told to stop", () => {
  test("ends with 0 at once, whatever has not said what it wants", async () => {
    await using server = runTodo(["serve", "--port", "0"]);
    const port = await portOf(server);
    const whole = "GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n";
    for (const bytes of ["", "GET /li", "GET /livez HTTP/1.1\r\nHost: loc", whole, `${whole}GET /`])
      await opened(port, bytes);
    await sleep(100);
    const started = performance.now();
    server.kill("SIGTERM");
    expect(await server.exited).toBe(0);
    expect(performance.now() - started).toBeLessThan(3000);
    expect(messages(server)).toEqual(["listening", "stopping", "stopped"]);
  });

  test("answers what still comes, and says on each connection that it was the last", async () => {
    await using server = runTodo(["serve", "--port", "0"]);
    const port = await portOf(server);
    const body = '{"title":"x"}';
    const head = `POST /api/todos HTTP/1.1\r\nHost: localhost\r\n${JSON_TYPE}\r\nContent-Length: 13\r\n\r\n`;
    const upload = await opened(port, head);
    const kept = await opened(port, "GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n");
    await once(kept, "data");
    server.kill("SIGTERM");
    await sleep(50);
    kept.write("GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n");
    expect(await rest(kept)).toMatch(
      /^HTTP\/1\.1 503 [\s\S]*\r\nconnection: close\r\n[\s\S]*"code":"stopping"/i,
    );
    await sleep(1000);
    upload.write(body);
    expect(await rest(upload)).toMatch(/^HTTP\/1\.1 201 [\s\S]*\r\nconnection: close\r\n/i);
    expect(await server.exited).toBe(0);
  });

  test("cuts off what does not come or go within some seconds, says so, and ends with 0", async () => {
    await using server = runTodo(["serve", "--port", "0", "--store", `sqlite:${join(folder, "cut.db")}`]);
    const port = await portOf(server);
    // More than sockets hold.
    const headers = { "Content-Type": "application/json" };
    const body = JSON.stringify({ title: "\u{1f600}".repeat(120) });
    const url = `http://127.0.0.1:${port}/api/todos`;
    const posts = Array.from({ length: 20_000 }, () => fetch(url, { method: "POST", headers, body }));
    for (const { status } of await Promise.all(posts)) expect(status).toBe(201);
    const upload = await opened(port, request("POST /api/todos", [JSON_TYPE, "Content-Length: 99"], "{"));
    const reader = connect(port, "127.0.0.1");
    reader.write(request("GET /api/todos"));
    await once(reader, "data");
    reader.pause();
    const started = performance.now();
    server.kill("SIGTERM");
    expect(await server.exited).toBe(0);
    expect(performance.now() - started).toBeWithin(7000, 10_000);
    // The upload may have come to the end of its own time just before.
    expect(server.stdout()).toMatch(/"requests":[12],"msg":"requests did not end in time: cut off"/);
    upload.destroy();
    reader.destroy();
  }, 20_000);

  test("goes on serving for its stop delay, not ready", async () => {
    await using server = runTodo(["serve", "--port", "0", "--stop-delay", "1"]);
    const url = await server.url;
    const started = performance.now();
    server.kill("SIGTERM");
    await sleep(100);
    const statuses = async () => [
      (await fetch(`${url}/readyz`)).status,
      (await fetch(`${url}/api/todos`)).status,
    ];
    expect(await statuses()).toEqual([503, 200]);
    await sleep(500);
    expect(await statuses()).toEqual([503, 200]);
    expect(await server.exited).toBe(0);
    expect(performance.now() - started).toBeWithin(1000, 5000);
    // That it is not ready was asked for: no fault, of which a balancer's every look would write a line.
    expect(messages(server)).toEqual(["listening", "stopping", "stopped"]);
  });

  test("has all of its stop delay, however long", async () => {
    await using server = runTodo(["serve", "--port", "0", "--stop-delay", "11"]);
    await server.url;
    server.kill("SIGTERM");
    expect(await server.exited).toBe(0);
    expect(messages(server)).toEqual(["listening", "stopping", "stopped"]);
  }, 30_000);

  test(
    `under load resets no request and loses no write, ${ROUNDS} times`,
    async () => {
      const path = join(folder, "load.db");
      const acknowledged = new Set<string>();
      const unanswered = new Set<string>();
      for (let round = 0; round < ROUNDS; round++) {
        await using server = runTodo(["serve", "--port", "0", "--store", `sqlite:${path}`]);
        const port = await portOf(server);
        const clients = Array.from({ length: 48 }, (_, index) =>
          load({ port, index, name: `${round}-${index}`, acknowledged, unanswered }),
        );
        await sleep(300 + 100 * Math.random());
        const before = acknowledged.size;
        server.kill("SIGTERM");
        const started = performance.now();
        expect(await server.exited).toBe(0);
        expect(performance.now() - started).toBeLessThan(10_000);
        // Whoever comes now is refused.
        expect(await Promise.all(clients)).toEqual(clients.map(() => "refused"));
        // What this test is about came on after the signal too.
        expect(before).toBeGreaterThan(0);
        expect(acknowledged.size).toBeGreaterThan(before);
      }
      await using server = runTodo(["serve", "--port", "0", "--store", `sqlite:${path}`]);
      const stored = new Set<string>();
      for (const { title } of JSON.parse(await (await fetch(`${await server.url}/api/todos`)).text()))
        stored.add(title);
      expect([...acknowledged].filter((title) => !stored.has(title))).toEqual([]);
      // What found its connection closed had not been accepted.
      expect([...unanswered].filter((title) => stored.has(title))).toEqual([]);
    },
    30_000 + 5000 * ROUNDS,
  );
});

describe("a server that is told to stop, over HTTP/2", () => {
  test("answers each stream, or says that it was not begun, 3 times", async () => {
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
      await sleep(500);
      const before = acknowledged.length;
      server.kill("SIGTERM");
      expect(await server.exited).toBe(0);
      expect((await Promise.all(clients)).flat()).toEqual([]);
      expect(before).toBeGreaterThan(0);
      expect(acknowledged.length).toBeGreaterThan(before);
      await using again = runTodo(["serve", "--port", "0", ...store]);
      const stored: { title: string }[] = JSON.parse(
        await (await fetch(`${await again.url}/api/todos`)).text(),
      );
      expect(stored.map(({ title }) => title).toSorted()).toEqual(acknowledged.toSorted());
    }
  }, 60_000);
});

/**
 * Keeps eight streams at a time on a connection, of which each makes a to-do, until there is none. Gives those that
 * ended in any other way than with an answer or with REFUSED_STREAM, which says that nothing was done (RFC 9113 §8.7).
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

/** How a client comes: on one connection without a pause, or with some, or on a new one each time. */
const PAUSES_MS: readonly number[] = [0, 20, 500];
/** A client that is quiet for longer than a stop waits may send just as its connection is closed (RFC 9112 §9.3.1). */
const QUIET_MS = 200;

interface Load {
  readonly port: number;
  readonly index: number;
  /** Begins each of its titles. */
  readonly name: string;
  /** Titles. */
  readonly acknowledged: Set<string>;
  readonly unanswered: Set<string>;
}

/**
 * Sends a request after the other, half of the clients to read and half to write, until none can be sent; gives why.
 * A request that was sent and not answered whole is "reset".
 */
async function load({ port, index, name, acknowledged, unanswered }: Load): Promise<"refused" | "reset"> {
  const isPost = index % 2 === 0;
  const ways = [...PAUSES_MS, undefined];
  const pauseMs = ways[(index >> 1) % ways.length];
  for (let sent = 0; ; ) {
    const connection = await Connection.open(port);
    if (connection === undefined) return "refused";
    let quietSince = performance.now();
    while (!connection.isClosed) {
      const title = `${name}-${sent++}`;
      const body = JSON.stringify({ title });
      const quietMs = performance.now() - quietSince;
      const answer = await connection.exchange(
        isPost
          ? `POST /api/todos HTTP/1.1\r\nHost: localhost\r\n${JSON_TYPE}\r\nContent-Length: ${body.length}\r\n\r\n${body}`
          : "GET /api/todos?limit=1 HTTP/1.1\r\nHost: localhost\r\n\r\n",
      );
      quietSince = performance.now();
      if (answer === undefined) {
        if (quietMs < QUIET_MS) return "reset";
        if (isPost) unanswered.add(title);
        break;
      }
      if (isPost && statusOf(answer) === 201) acknowledged.add(title);
      if (pauseMs === undefined || /^connection: close\r$/im.test(answer)) break;
      if (pauseMs > 0) await sleep(pauseMs * Math.random());
    }
    connection.close();
  }
}

/** A connection over which one request follows the other. */
class Connection {
  readonly #socket: Socket;
  #text = "";
  #onChange = (): void => {};
  isClosed = false;

  /** Gives undefined where there is nobody to connect to. */
  static async open(port: number): Promise<Connection | undefined> {
    const socket = connect(port, "127.0.0.1");
    const error = await new Promise<Error | undefined>((resolve) => {
      socket.once("connect", () => resolve(undefined));
      socket.once("error", resolve);
    });
    if (error === undefined) return new Connection(socket);
    if ("code" in error && error.code === "ECONNREFUSED") return undefined;
    throw error;
  }

  private constructor(socket: Socket) {
    this.#socket = socket;
    const close = (): void => {
      this.isClosed = true;
      this.#onChange();
    };
    for (const event of ["error", "end", "close"]) socket.on(event, close);
    socket.setEncoding("latin1");
    socket.on("data", (text) => {
      this.#text += text;
      this.#onChange();
    });
  }

  /** Sends a request; gives its whole answer, or undefined where the connection is closed before. */
  async exchange(bytes: string): Promise<string | undefined> {
    this.#text = "";
    this.#socket.write(bytes);
    while (!this.#isWhole()) {
      if (this.isClosed) return undefined;
      await new Promise<void>((resolve) => {
        this.#onChange = resolve;
      });
    }
    return this.#text;
  }

  #isWhole(): boolean {
    const end = this.#text.indexOf("\r\n\r\n");
    const length = Number(/^content-length: (\d+)\r$/im.exec(this.#text)?.[1] ?? 0);
    return end >= 0 && this.#text.length >= end + 4 + length;
  }

  close(): void {
    this.#socket.destroy();
  }
}
