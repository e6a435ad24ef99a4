/** Two clients over raw sockets: one adds to-dos, one reads the full list at a given rate. */
import { encode } from "./load.ts";
import { getList, post, TOKEN } from "./requests.ts";

/** Adds exactly `count` to-dos with different titles; up to 1,000 of them in the order of their titles. */
export async function seed(port: number, count: number): Promise<void> {
  let sent = 0;
  const next = () => {
    if (sent === count) return undefined;
    sent += 1;
    // Private mode needs the token.
    const headers = { ...post.headers, Authorization: `Bearer ${TOKEN}` };
    return encode({ ...post, headers, body: JSON.stringify({ title: `buy milk and bread ${sent}` }) }, port);
  };
  await Promise.all(Array.from({ length: count > 1_000 ? 64 : 1 }, () => sendEach(port, next)));
}

/** Sends what `next` returns over one connection, each after the response to the last, which must be a 201. */
function sendEach(port: number, next: () => Buffer | undefined): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  let received = "";
  let isFinished = false;
  const advance = (socket: Bun.Socket) => {
    const request = next();
    if (request !== undefined) {
      socket.write(request);
      return;
    }
    isFinished = true;
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
        if (!isFinished) reject(new Error("the server closed the connection during POST"));
      },
      error: (_, error) => reject(error),
    },
  }).catch(reject);
  return promise;
}

/**
 * Reads the full list on a connection of its own and discards it, at most at `bytesPerSecond`.
 * Returns the bytes on the wire and the milliseconds from the request to the last byte. Throws if it is incomplete.
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
    const isComplete = length === undefined ? tail.endsWith("\r\n0\r\n\r\n") : Number(length) === body;
    if (head.startsWith("HTTP/1.1 200 ") && isComplete) resolve({ bytes, ms });
    else reject(new Error(`the list ended after ${bytes} bytes: ${head.slice(0, 500)}`));
  };
  Bun.connect({
    hostname: "127.0.0.1",
    port,
    socket: {
      open(socket) {
        started = performance.now();
        socket.write(encode({ ...getList, headers: { Connection: "close" } }, port));
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
