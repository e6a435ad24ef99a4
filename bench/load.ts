/** The load of the paired slices: a counted number of requests, over connections that stay open. */
import type { RequestSpec } from "./requests.ts";
import { cpuByThread, cpuSpent, type ServerProcess } from "./server-process.ts";

export interface Slice {
  readonly requests: number;
  /** CPU microseconds that all threads of the server used. */
  readonly cpu: number;
}

/** Kept-alive connections to one server, each with at most one request in flight. */
export interface Load {
  /** Sends this many requests and waits for every response. Throws if one has another status than expected. */
  run(requests: number): Promise<Slice>;
  close(): void;
}

/** The kernel updates a thread's CPU time when the thread sleeps, so the server gets time to become idle. */
const SETTLE_MS = 1;
const HEAD_END = Buffer.from("\r\n\r\n");

type Connection = Bun.Socket<{ missing: number }>;

/** Returns a load that connects when it is first run, and again where the server closed an idle connection. */
export function createLoad(server: ServerProcess, spec: RequestSpec, connections: number): Load {
  const usual = encode(spec, server.port);
  const alternate = encode({ ...spec, body: spec.alternateBody ?? spec.body }, server.port);
  const statusLine = Buffer.from(`HTTP/1.1 ${spec.status} `);
  const sockets = new Set<Connection>();
  let unsent = 0;
  let unanswered = 0;
  let usualLength = 0;
  let ended = Promise.withResolvers<void>();

  const fail = (reason: string) => ended.reject(new Error(`${spec.method} ${spec.path}: ${reason}`));
  const send = (socket: Connection) => {
    const request = unsent % 2 === 0 ? usual : alternate;
    unsent -= 1;
    if (socket.write(request) !== request.length) fail("a connection accepted only a part of a request");
  };
  const handler: Bun.SocketHandler<{ missing: number }> = {
    data(socket, chunk) {
      const { data } = socket;
      if (data.missing > 0) data.missing -= chunk.length;
      // Most responses have the length of the one before and arrive in one piece.
      else if (chunk.length !== usualLength || chunk[9] !== statusLine[9] || chunk[11] !== statusLine[11]) {
        const length = responseLength(chunk, statusLine);
        if (length === undefined) return fail(`unexpected response: ${chunk.toString("latin1", 0, 500)}`);
        data.missing = length - chunk.length;
        if (data.missing === 0) usualLength = length;
      }
      if (data.missing > 0) return;
      if (data.missing < 0) return fail("a response is longer than its Content-Length");
      if (unsent > 0) send(socket);
      unanswered -= 1;
      if (unanswered === 0) ended.resolve();
    },
    close(socket) {
      sockets.delete(socket);
      if (unanswered > 0) fail("the server closed a connection");
    },
    error: (_, error) => fail(error.message),
  };
  const open = () =>
    Bun.connect({ hostname: "127.0.0.1", port: server.port, data: { missing: 0 }, socket: handler });

  return {
    async run(requests) {
      while (sockets.size < connections) sockets.add(await open());
      ended = Promise.withResolvers();
      unsent = unanswered = requests;
      const before = cpuByThread(server.pid);
      for (const socket of sockets) if (unsent > 0) send(socket);
      await ended.promise;
      await Bun.sleep(SETTLE_MS);
      return { requests, cpu: cpuSpent(before, cpuByThread(server.pid)) };
    },
    close() {
      for (const socket of sockets) socket.terminate();
    },
  };
}

/** Returns the bytes of one request (RFC 9112). */
export function encode({ method, path, headers, body }: RequestSpec, port: number): Buffer {
  const lines = [`${method} ${path} HTTP/1.1`, `Host: 127.0.0.1:${port}`];
  for (const [name, value] of Object.entries(headers)) lines.push(`${name}: ${value}`);
  if (body !== undefined) lines.push(`Content-Length: ${Buffer.byteLength(body)}`);
  return Buffer.from(`${lines.join("\r\n")}\r\n\r\n${body ?? ""}`);
}

/** Returns the length of the response that starts here, or undefined if it is not the one expected. */
function responseLength(chunk: Buffer, statusLine: Buffer): number | undefined {
  const head = chunk.indexOf(HEAD_END);
  if (head < 0 || !chunk.subarray(0, statusLine.length).equals(statusLine)) return undefined;
  const length = /^content-length: (\d+)/im.exec(chunk.toString("latin1", 0, head))?.[1];
  // 304 has no body (RFC 9110 section 15.4.5).
  if (length === undefined) return statusLine.includes(" 304 ") ? head + HEAD_END.length : undefined;
  return head + HEAD_END.length + Number(length);
}
