import { connect, createServer, type Socket } from "node:net";

const LATE_MS = 3;

/** How bytes are forwarded: immediately, after a few milliseconds, only when the flow changes to "pass", or never. */
type Flow = "pass" | "late" | "hold" | "drop";

export interface Proxy extends AsyncDisposable {
  readonly url: string;
  readonly flow: (toServer: Flow, toClient: Flow) => void;
  /** Closes all connections. New ones are accepted. */
  readonly cut: () => void;
}

/** @param rewrite changes what clients send */
export async function startProxy(
  databaseUrl: string,
  rewrite: (bytes: Buffer) => Buffer = (bytes) => bytes,
): Promise<Proxy> {
  const url = new URL(databaseUrl);
  const { hostname, port } = url;
  const toServer = new Direction();
  const toClient = new Direction();
  const sockets = new Set<Socket>();
  const listener = createServer((client) => {
    const server = connect(Number(port || "5432"), hostname);
    for (const socket of [client, server]) {
      sockets.add(socket);
      socket.on("error", () => {});
      socket.on("close", () => {
        for (const end of [client, server]) {
          end.destroy();
          sockets.delete(end);
        }
      });
    }
    client.on("data", (bytes: Buffer) => toServer.send(server, rewrite(bytes)));
    server.on("data", (bytes: Buffer) => toClient.send(client, bytes));
  });
  const { promise: listening, resolve } = Promise.withResolvers<void>();
  listener.listen(0, "127.0.0.1", resolve);
  await listening;
  const address = listener.address();
  url.host = `127.0.0.1:${typeof address === "object" ? address?.port : undefined}`;
  const cut = () => {
    for (const socket of sockets) socket.destroy();
  };
  return {
    url: url.href,
    flow: (server, client) => {
      toServer.flow = server;
      toClient.flow = client;
    },
    cut,
    [Symbol.asyncDispose]: async () => {
      listener.close();
      cut();
    },
  };
}

class Direction {
  #flow: Flow = "pass";
  #held: (() => void)[] = [];

  set flow(flow: Flow) {
    this.#flow = flow;
    if (flow !== "pass") return;
    for (const send of this.#held) send();
    this.#held = [];
  }

  send(to: Socket, bytes: Uint8Array): void {
    if (this.#flow === "pass") to.write(bytes);
    else if (this.#flow === "late") setTimeout(() => to.write(bytes), LATE_MS);
    else if (this.#flow === "hold") this.#held.push(() => to.write(bytes));
  }
}
