// Guesses passwords over kept-alive connections. As a program, in its own process next to a measurement:
// `bun test/flood.ts PORT CONNECTIONS MILLISECONDS USERS`. At SIGTERM, it ends after the guesses under way.
import { basic } from "./credentials.ts";
import { Connection, statusOf } from "./raw-http.ts";

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
  const guess = async (): Promise<void> => {
    using connection = await Connection.open(port);
    for (let authorization = next(); authorization !== undefined; authorization = next()) {
      const answer = await connection.exchange(
        `GET ${path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: ${authorization}\r\n\r\n`,
      );
      const status = answer === undefined ? "closed" : String(statusOf(answer));
      answers[status] = (answers[status] ?? 0) + 1;
      if (answer === undefined) return;
    }
  };
  await Promise.all(Array.from({ length: connections }, guess));
  return answers;
}

if (import.meta.main) {
  const [port = 0, connections = 0, ms = 0, users = 1] = process.argv.slice(2).map(Number);
  let end = performance.now() + ms;
  process.on("SIGTERM", () => {
    end = 0;
  });
  let guesses = 0;
  const next = (): string | undefined =>
    performance.now() > end ? undefined : basic(`user${guesses++ % users}`, `wrong ${guesses}`);
  process.stdout.write(JSON.stringify(await flood({ port, connections, next })));
}
