/** A raw HTTP/1.1 client for requests that `fetch` cannot send. All texts are Latin-1, one character per byte. */
import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { getErrno } from "../src/error-message.ts";
import { until } from "./until.ts";

/** A title with the maximum length and, in UTF-8, the maximum size. */
export const LONGEST_TITLE = "😀".repeat(120);

export function request(line: string, headers: readonly string[] = [], body = ""): string {
  return [`${line} HTTP/1.1`, "Host: localhost", "Connection: close", ...headers, "", body].join("\r\n");
}

export function statusOf(response: string): number | undefined {
  const status = /^HTTP\/1\.1 (\d{3}) /.exec(response)?.[1];
  return status === undefined ? undefined : Number(status);
}

/** Returns a body in chunked coding (RFC 9112 §7.1), in chunks of at most `size` bytes. */
export function chunked(body: string, size: number): string {
  let coded = "";
  for (let at = 0; at < body.length; at += size) {
    const chunk = body.slice(at, at + size);
    coded += `${chunk.length.toString(16)}\r\n${chunk}\r\n`;
  }
  return `${coded}0\r\n\r\n`;
}

export function unchunked(response: string): string {
  let at = response.indexOf("\r\n\r\n") + 4;
  const chunks: string[] = [];
  while (true) {
    const end = response.indexOf("\r\n", at);
    const length = Number.parseInt(response.slice(at, end), 16);
    if (end < 0 || Number.isNaN(length)) throw new Error("the chunked body is cut off");
    if (length === 0) return chunks.join("");
    chunks.push(response.slice(end + 2, end + 2 + length));
    at = end + 2 + length + 2;
  }
}

/** Opens a connection to a port of loopback and sends bytes. Rejects if it cannot connect; later errors only close it. */
export async function openSocket(port: number, bytes: string | Uint8Array = ""): Promise<Socket> {
  const socket = connect(port, "127.0.0.1");
  await once(socket, "connect");
  socket.on("error", () => {});
  socket.setNoDelay(true);
  if (bytes.length > 0) socket.write(typeof bytes === "string" ? Buffer.from(bytes, "latin1") : bytes);
  return socket;
}

/** Requests a path, and stops reading after the first bytes. Rejects if none arrive within a minute. */
export async function startReading(port: number, path = "/api/todos"): Promise<Socket> {
  const socket = await openSocket(port, request(`GET ${path}`));
  const [first] = await once(socket, "data", { signal: AbortSignal.timeout(60_000) });
  socket.pause();
  socket.unshift(first);
  return socket;
}

export async function readToEnd(socket: Socket): Promise<string> {
  return Buffer.concat(await Array.fromAsync<Buffer>(socket)).toString("latin1");
}

export interface RawAnswer {
  readonly text: string;
  readonly closed: boolean;
}

/** Reads until the server closes the connection, which is better, or is silent for `quietMs`: a busy machine may respond later. */
export function sendRaw(port: number, bytes: string | Uint8Array, quietMs = 10_000): Promise<RawAnswer> {
  return new Promise((resolve) => {
    const socket = connect(port, "127.0.0.1");
    let text = "";
    socket.setEncoding("latin1");
    const finish = (closed: boolean): void => {
      socket.destroy();
      resolve({ text, closed });
    };
    socket.setTimeout(quietMs, () => finish(false));
    socket.on("data", (chunk) => {
      text += chunk;
    });
    socket.on("error", () => finish(true));
    socket.on("end", () => finish(true));
    socket.on("connect", () =>
      socket.write(typeof bytes === "string" ? Buffer.from(bytes, "latin1") : bytes),
    );
  });
}

/** A kept-alive connection that carries one request after another. Responses have a `Content-Length`, or no body. */
export class Connection implements Disposable {
  readonly #socket: Socket;
  #text = "";
  #onChange = (): void => {};
  #isClosed = false;

  /** Rejects if the server does not accept the connection. */
  static async open(port: number): Promise<Connection> {
    return new Connection(await openSocket(port));
  }

  private constructor(socket: Socket) {
    this.#socket = socket;
    const close = (): void => {
      this.#isClosed = true;
      this.#onChange();
    };
    for (const event of ["error", "end", "close"]) socket.on(event, close);
    socket.setEncoding("latin1");
    socket.on("data", (text) => {
      this.#text += text;
      this.#onChange();
    });
  }

  get isClosed(): boolean {
    return this.#isClosed;
  }

  /** Sends a request. Returns its complete response, or undefined if the connection is closed before. */
  async exchange(bytes: string): Promise<string | undefined> {
    this.#text = "";
    this.#socket.write(bytes);
    while (!this.#isComplete()) {
      if (this.#isClosed) return undefined;
      await new Promise<void>((resolve) => {
        this.#onChange = resolve;
      });
    }
    return this.#text;
  }

  #isComplete(): boolean {
    const end = this.#text.indexOf("\r\n\r\n");
    const length = Number(/^content-length: (\d+)\r$/im.exec(this.#text)?.[1] ?? 0);
    return end >= 0 && this.#text.length >= end + 4 + length;
  }

  [Symbol.dispose](): void {
    this.#socket.destroy();
  }
}

export const portClosed = (port: number): Promise<void> =>
  until(async () => (await connectError(port)) === "ECONNREFUSED", `port ${port} is closed`);

async function connectError(port: number): Promise<unknown> {
  try {
    (await openSocket(port)).destroy();
    return undefined;
  } catch (error) {
    return getErrno(error);
  }
}
