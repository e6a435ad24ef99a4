/**
 * Guesses passwords over kept-alive connections, the next one as soon as the last one is answered. Also a program:
 * `bun test/flood.ts PORT CONNECTIONS MILLISECONDS USERS`, which runs in its own process next to a measurement.
 */
import { connect } from "node:net";

export interface Flood {
  readonly port: number;
  readonly connections: number;
  /** Returns the next Authorization header, or undefined to stop. */
  readonly next: () => string | undefined;
  readonly path?: string;
}

/** The number of responses by status. `closed` counts connections that the server closed without a response. */
export async function flood({ port, connections, next, path = "/admin/" }: Flood) {
  const answers: Record<string, number> = {};
  const guess = (): Promise<void> =>
    new Promise((resolve, reject) => {
      const socket = connect(port, "127.0.0.1");
      let received = "";
      let isDone = false;
      const send = (): void => {
        const authorization = next();
        if (authorization === undefined) {
          isDone = true;
          socket.destroy();
        } else
          socket.write(`GET ${path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: ${authorization}\r\n\r\n`);
      };
      socket.setNoDelay(true);
      socket.setEncoding("latin1");
      socket.on("connect", send);
      socket.on("error", reject);
      socket.on("close", () => {
        if (!isDone) answers.closed = (answers.closed ?? 0) + 1;
        resolve();
      });
      socket.on("data", (chunk) => {
        received += chunk;
        const head = received.indexOf("\r\n\r\n");
        const length = Number(/^content-length: (\d+)/im.exec(received)?.[1] ?? 0);
        if (head < 0 || received.length < head + 4 + length) return;
        const status = received.slice(9, 12);
        answers[status] = (answers[status] ?? 0) + 1;
        received = "";
        send();
      });
    });
  await Promise.all(Array.from({ length: connections }, guess));
  return answers;
}

export const basic = (user: string, password: string): string => `Basic ${btoa(`${user}:${password}`)}`;

if (import.meta.main) {
  const [port = 0, connections = 0, ms = 0, users = 1] = process.argv.slice(2).map(Number);
  const end = performance.now() + ms;
  let guesses = 0;
  const next = (): string | undefined =>
    performance.now() > end ? undefined : basic(`user${guesses++ % users}`, `wrong ${guesses}`);
  process.stdout.write(JSON.stringify(await flood({ port, connections, next })));
}
