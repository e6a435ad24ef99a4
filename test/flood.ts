// Guesses passwords over kept-alive connections, in its own process next to a measurement:
// `bun test/flood.ts PORT CONNECTIONS MILLISECONDS USERS`. At SIGTERM, it ends after the guesses under way.
import { basic } from "./credentials.ts";
import { Connection, statusOf } from "./raw-http.ts";

const [port = 0, connections = 0, ms = 0, users = 1] = process.argv.slice(2).map(Number);
let end = performance.now() + ms;
process.on("SIGTERM", () => {
  end = 0;
});
let guesses = 0;
/** The number of responses by status. `closed` counts connections that the server closed without a response. */
const answers: Record<string, number> = {};

async function guess(): Promise<void> {
  using connection = await Connection.open(port);
  while (performance.now() <= end) {
    const authorization = basic(`user${guesses++ % users}`, `wrong ${guesses}`);
    const answer = await connection.exchange(
      `GET /admin/ HTTP/1.1\r\nHost: localhost\r\nAuthorization: ${authorization}\r\n\r\n`,
    );
    const status = answer === undefined ? "closed" : String(statusOf(answer));
    answers[status] = (answers[status] ?? 0) + 1;
    if (answer === undefined) return;
  }
}

await Promise.all(Array.from({ length: connections }, guess));
process.stdout.write(JSON.stringify(answers));
