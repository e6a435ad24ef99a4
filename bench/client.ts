/** The load: wrk for a slice, and two small clients over raw sockets for what wrk cannot do. */
import { type Child, cpuByThread, cpuSpent, track } from "./child.ts";
import type { Shot } from "./workloads.ts";

export interface Slice {
  readonly requests: number;
  readonly perSecond: number;
  /** CPU microseconds the server spent on a request, all its threads together. */
  readonly cpu: number;
  /** How much of its core the server used, 0 to 1. */
  readonly core: number;
  /** 99th percentile of the latency in microseconds. */
  readonly p99: number;
}

/** Sends one request over and over for whole `seconds`. Throws on any refusal or socket error. */
export async function slice(child: Child, shot: Shot, seconds: number, connections: number): Promise<Slice> {
  const headers = Object.entries(shot.headers).flatMap(([name, value]) => ["-H", `${name}: ${value}`]);
  const url = `http://127.0.0.1:${child.port}${shot.path}`;
  const script = new URL("wrk.lua", import.meta.url).pathname;
  const before = cpuByThread(child.pid);
  const wrk = Bun.spawn(["wrk", "-t1", `-c${connections}`, `-d${seconds}s`, "-s", script, ...headers, url], {
    env: { BENCH_METHOD: shot.method, ...(shot.body === undefined ? {} : { BENCH_BODY: shot.body }) },
    stdio: ["ignore", "pipe", "inherit"],
  });
  track(wrk);
  const output = await new Response(wrk.stdout).text();
  const after = cpuByThread(child.pid);

  const line = output.split("\n").find((text) => text.startsWith("{"));
  if ((await wrk.exited) !== 0 || line === undefined) throw new Error(`wrk failed on ${url}: ${output}`);
  const { requests, microseconds, p99, ...failures }: Record<string, number> = JSON.parse(line);
  if (!requests || !microseconds || p99 === undefined || Object.values(failures).some((count) => count > 0)) {
    throw new Error(`${shot.method} ${url} failed: ${line}`);
  }
  const spent = cpuSpent(before, after);
  return {
    requests,
    perSecond: (requests / microseconds) * 1e6,
    cpu: spent / requests,
    core: spent / microseconds,
    p99,
  };
}

/** Stores exactly `count` to-dos, each with a title of its own; up to 1,000 of them in the order of their titles. */
export async function store(port: number, count: number): Promise<void> {
  let sent = 0;
  const next = () => {
    if (sent === count) return undefined;
    sent += 1;
    const body = `{"title":"buy milk and bread ${sent}"}`;
    return `POST /api/todos HTTP/1.1\r\nHost: 127.0.0.1:${port}\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}`;
  };
  await Promise.all(Array.from({ length: count > 1_000 ? 64 : 1 }, () => converse(port, next)));
}

/** One connection that sends what `next` gives, each after the answer to the last, which must be a 201. */
function converse(port: number, next: () => string | undefined): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  let received = "";
  let finished = false;
  const advance = (socket: Bun.Socket) => {
    const request = next();
    if (request !== undefined) {
      socket.write(request);
      return;
    }
    finished = true;
    socket.end();
    resolve();
  };
  Bun.connect({
    hostname: "127.0.0.1",
    port,
    socket: {
      open: advance,
      data(socket, bytes) {
        received += bytes.toString("latin1");
        const head = received.indexOf("\r\n\r\n");
        if (head < 0) return;
        const length = Number(/^content-length: (\d+)/im.exec(received)?.[1]);
        if (!received.startsWith("HTTP/1.1 201 ") || Number.isNaN(length)) {
          reject(new Error(`POST was answered with ${received.slice(0, 500)}`));
          socket.end();
        } else if (received.length >= head + 4 + length) {
          received = "";
          advance(socket);
        }
      },
      close() {
        if (!finished) reject(new Error("the server closed the connection during POST"));
      },
      error: (_, error) => reject(error),
    },
  }).catch(reject);
  return promise;
}

/**
 * Reads the full list on a connection of its own and throws it away, at most at `bytesPerSecond`.
 * Gives the bytes on the wire and the milliseconds from the request to the last byte; throws if it is not complete.
 */
export function readList(port: number, bytesPerSecond = Infinity): Promise<{ bytes: number; ms: number }> {
  const { promise, resolve, reject } = Promise.withResolvers<{ bytes: number; ms: number }>();
  let started = 0;
  let head = "";
  let tail = "";
  let bytes = 0;
  const finish = () => {
    const ms = performance.now() - started;
    const body = bytes - head.indexOf("\r\n\r\n") - 4;
    const length = /^content-length: (\d+)/im.exec(head)?.[1];
    const complete = length === undefined ? tail.endsWith("\r\n0\r\n\r\n") : Number(length) === body;
    if (head.startsWith("HTTP/1.1 200 ") && complete) resolve({ bytes, ms });
    else reject(new Error(`the list broke off after ${bytes} bytes: ${head.slice(0, 500)}`));
  };
  Bun.connect({
    hostname: "127.0.0.1",
    port,
    socket: {
      open(socket) {
        started = performance.now();
        socket.write(`GET /api/todos HTTP/1.1\r\nHost: 127.0.0.1:${port}\r\nConnection: close\r\n\r\n`);
      },
      data(socket, chunk) {
        bytes += chunk.length;
        if (head.length < 4_096) head += chunk.toString("latin1", 0, 4_096);
        tail = (tail + chunk.toString("latin1", Math.max(0, chunk.length - 8))).slice(-8);
        if (bytesPerSecond === Infinity) return;
        socket.pause();
        setTimeout(() => socket.resume(), (chunk.length / bytesPerSecond) * 1_000);
      },
      close: finish,
      error: (_, error) => reject(error),
    },
  }).catch(reject);
  return promise;
}
