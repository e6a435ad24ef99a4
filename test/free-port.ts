import { randomInt } from "node:crypto";
import { createSocket } from "node:dgram";
import { createServer } from "node:net";

/** Systems choose the ports of other sockets above these. Only a program that asks for this port can take it. */
const [FIRST, END] = [10_000, 32_000];
/** While a process uses a port of TCP, it holds the port of UDP that is higher by this number. */
const UDP_OFFSET = 32_000;

/** No other test gets the port until this process ends, so a server on it can restart. */
export async function freePort(): Promise<number> {
  let port = randomInt(FIRST, END);
  while (!(await reserve(port)) || !(await isFree(port))) port = randomInt(FIRST, END);
  return port;
}

/** Tests run in several processes, so the system must know which ports they have. */
function reserve(port: number): Promise<boolean> {
  const { promise, resolve } = Promise.withResolvers<boolean>();
  const socket = createSocket("udp4").unref();
  socket.on("error", () => {
    socket.close();
    resolve(false);
  });
  socket.bind({ address: "127.0.0.1", port: port + UDP_OFFSET, exclusive: true }, () => resolve(true));
  return promise;
}

function isFree(port: number): Promise<boolean> {
  const { promise, resolve } = Promise.withResolvers<boolean>();
  const server = createServer();
  server.on("error", () => resolve(false));
  server.listen(port, "127.0.0.1", () => server.close(() => resolve(true)));
  return promise;
}
