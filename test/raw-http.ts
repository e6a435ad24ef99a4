import { connect } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";

/** What a raw exchange brought: the bytes as Latin-1, and whether the server closed the connection. */
export interface RawAnswer {
  readonly text: string;
  readonly closed: boolean;
}

/**
 * Sends bytes to a port of loopback. Reads until the server closes the connection, or sends nothing for `quietMs`. Let the
 * server close the connection where possible: on a busy machine a response may be late.
 */
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

/** Resolves when connections to a port of loopback are refused. */
export async function portClosed(port: number): Promise<void> {
  while ((await connectError(port)) !== "ECONNREFUSED") await sleep(10);
}

/** Opens a connection and closes it; resolves with the code of the error, or undefined after success. */
function connectError(port: number): Promise<string | undefined> {
  return new Promise((resolve) => {
    const socket = connect(port, "127.0.0.1");
    socket.on("connect", () => {
      socket.destroy();
      resolve(undefined);
    });
    socket.on("error", (error) => resolve("code" in error ? String(error.code) : undefined));
  });
}
