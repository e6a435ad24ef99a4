import { connect, createServer, type Socket } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import type { Fault } from "./sdk-suite.ts";

const LATE_MS = 100;
const STALE_MS = 1500;

export interface FaultyProxy extends AsyncDisposable {
  readonly url: string;
  readonly struck: () => Readonly<Partial<Record<Fault, number>>>;
  readonly cut: () => void;
  /** Resolves when no write is on its way to the server or delayed. */
  readonly settled: () => Promise<void>;
}

/** One response per connection, and no fault for CORS preflights. `faultFor` gets a request such as "POST /api/todos". */
export async function startFaultyProxy(
  serverPort: number,
  faultFor: (request: string) => Fault,
): Promise<FaultyProxy> {
  const sockets = new Set<Socket>();
  const struck: Partial<Record<Fault, number>> = {};
  const pending = new Set<Promise<unknown>>();
  const track = (request: Buffer, work: Promise<unknown>): void => {
    // An event stream may never end.
    if (request.toString("latin1", 0, 4) === "GET ") return;
    pending.add(work);
    void work.finally(() => pending.delete(work));
  };
  const held = (socket: Socket): Socket => {
    sockets.add(socket);
    socket.on("error", () => {});
    socket.on("close", () => sockets.delete(socket));
    return socket;
  };

  /** Resolves with the server's whole response and reports its chunks. Ends when the client closes its connection. */
  const forward = (request: Buffer, client?: Socket, onBytes?: (bytes: Buffer) => void): Promise<Buffer> =>
    new Promise((resolve) => {
      const server = held(connect(serverPort, "127.0.0.1", () => server.write(request)));
      client?.on("close", () => server.destroy());
      const pieces: Buffer[] = [];
      server.on("data", (bytes: Buffer) => {
        pieces.push(bytes);
        onBytes?.(bytes);
      });
      server.on("close", () => resolve(Buffer.concat(pieces)));
    });

  async function answer(client: Socket, request: Buffer): Promise<void> {
    const line = request.toString("latin1", 0, request.indexOf(" HTTP/"));
    const fault = line.startsWith("OPTIONS") ? "pass" : faultFor(line);
    struck[fault] = (struck[fault] ?? 0) + 1;
    switch (fault) {
      case "late":
      case "pass":
        if (fault === "late") await sleep(LATE_MS);
        await forward(request, client, (bytes) => client.write(bytes));
        break;
      case "refuse":
        break;
      case "lose":
        await forward(request, client, () => client.destroy());
        break;
      case "cut":
        await forward(request, client, (bytes) => {
          client.write(bytes.subarray(0, bytes.length - 3), () => client.destroy());
        });
        break;
      case "twice": {
        const both = [forward(request, client), forward(request, client)];
        const first = await Promise.race(both.map(async (one, index) => ({ index, bytes: await one })));
        client.write((await both[1 - first.index]) ?? first.bytes);
        break;
      }
      case "echo": {
        const all = await forward(request, client);
        client.write(Buffer.concat([all, all]));
        break;
      }
      case "silent":
        await forward(request, client);
        return;
      case "stale":
        track(
          request,
          sleep(STALE_MS).then(() => forward(request)),
        );
        return;
      case "busy":
        await forward(request, client);
        client.write(plain("503 Service Unavailable", "Retry-After: 1\r\n"));
        break;
      case "throttle":
        client.write(plain("429 Too Many Requests", "Retry-After: 0\r\n"));
        break;
    }
    client.end();
  }

  const listener = createServer((client) => {
    held(client);
    let received = Buffer.alloc(0);
    client.on("data", (bytes: Buffer) => {
      received = Buffer.concat([received, bytes]);
      const request = wholeRequest(received);
      if (request === undefined) return;
      received = Buffer.alloc(0);
      track(request, answer(client, request));
    });
  });
  await new Promise<void>((resolve) => listener.listen(0, "127.0.0.1", resolve));
  const address = listener.address();
  const cut = (): void => {
    for (const socket of sockets) socket.destroy();
  };
  return {
    url: `http://127.0.0.1:${typeof address === "object" ? address?.port : undefined}`,
    struck: () => struck,
    cut,
    settled: async () => {
      while (pending.size > 0) await Promise.all(pending);
    },
    [Symbol.asyncDispose]: async () => {
      listener.close();
      cut();
    },
  };
}

/** Returns a complete request with `Connection: close`, so that the response ends with the connection. */
function wholeRequest(received: Buffer): Buffer | undefined {
  const end = received.indexOf("\r\n\r\n");
  if (end < 0) return undefined;
  const head = received.toString("latin1", 0, end);
  const length = Number(/^content-length: *(\d+)/im.exec(head)?.[1] ?? 0);
  if (received.length < end + 4 + length) return undefined;
  const closing = head.replace(/\r\nconnection: .*/i, "");
  return Buffer.concat([Buffer.from(`${closing}\r\nConnection: close`, "latin1"), received.subarray(end)]);
}

const SHARED = "Access-Control-Allow-Origin: *\r\nAccess-Control-Expose-Headers: Retry-After\r\n";

const plain = (status: string, headers: string): string =>
  `HTTP/1.1 ${status}\r\n${headers}${SHARED}Content-Length: 0\r\nConnection: close\r\n\r\n`;
