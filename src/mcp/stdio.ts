import type { Readable, Writable } from "node:stream";
import type { JSONRPCMessage } from "@modelcontextprotocol/server";
import { StdioServerTransport, serveStdio } from "@modelcontextprotocol/server/stdio";
import { ZodError } from "zod";
import { errorMessage } from "../error-message.ts";
import { createTodoServer, type TodoServerOptions } from "./server.ts";

/** How long requests may take that are in progress at the end of the input. */
const FINISH_MS = 10_000;

export interface StdioOptions extends Omit<TodoServerOptions, "onInternalError"> {
  readonly input: Readable;
  /** Receives protocol messages only, one per line. */
  readonly output: Writable;
  /** Receives one line about each problem that the client is not told. */
  readonly warn: (message: string) => void;
  /** Milliseconds for requests that are in progress at the end of the input; 10,000 by default. */
  readonly finishMs?: number;
}

/** Serves one assistant until the input ends and its requests have responses, or until the output fails. */
export async function serveOverStdio(options: StdioOptions): Promise<void> {
  const { input, output, warn, finishMs = FINISH_MS } = options;
  const closed = Promise.withResolvers<void>();
  /** The ids of the requests without a response. */
  const pending = new Set<unknown>();
  let onAnswered = (): void => {};
  const settle = (id: unknown): void => {
    pending.delete(id);
    if (pending.size === 0) onAnswered();
  };
  /** The SDK's transport would lose the responses of a script that closes the input at once. This one waits for them. */
  class Transport extends StdioServerTransport {
    override async send(message: JSONRPCMessage): Promise<void> {
      await super.send(message);
      if (!("method" in message)) settle(message.id);
    }

    override async close(): Promise<void> {
      if (pending.size > 0 && output.writable) {
        const answered = Promise.withResolvers<void>();
        onAnswered = answered.resolve;
        const timer = setTimeout(answered.resolve, finishMs);
        await answered.promise;
        clearTimeout(timer);
      }
      await super.close();
      closed.resolve();
    }
  }
  const transport = new Transport(input, output);
  const onerror = (error: unknown): void =>
    warn(error instanceof ZodError ? "ignored a message that is not JSON-RPC 2.0" : errorMessage(error));
  const onInternalError = (error: unknown): void => warn(`internal error: ${errorMessage(error)}`);
  serveStdio(() => createTodoServer({ ...options, onInternalError }), { transport, onerror });
  const deliver = transport.onmessage;
  transport.onmessage = (message) => {
    if ("method" in message) {
      // The SDK accepts subscriptions of version 2026-07-28, which end only with the connection.
      if ("id" in message && message.method !== "subscriptions/listen") pending.add(message.id);
      else if (message.method === "notifications/cancelled") settle(message.params?.requestId);
    }
    deliver?.(message);
  };
  await closed.promise;
  input.destroy();
}
