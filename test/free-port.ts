import { randomInt } from "node:crypto";
import { createServer } from "node:net";

/** Systems choose the ports of other sockets above these. Only a program that asks for this port can take it. */
const [FIRST, END] = [10_000, 32_000];

/** Returns a port of loopback that is free, and that stays free until a server uses it, also while the server restarts. */
export async function freePort(): Promise<number> {
  let port = randomInt(FIRST, END);
  while (!(await isFree(port))) port = randomInt(FIRST, END);
  return port;
}

function isFree(port: number): Promise<boolean> {
  const { promise, resolve } = Promise.withResolvers<boolean>();
  const server = createServer();
  server.on("error", () => resolve(false));
  server.listen(port, "127.0.0.1", () => server.close(() => resolve(true)));
  return promise;
}
