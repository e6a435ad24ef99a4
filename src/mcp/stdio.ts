import type { Readable, Writable } from "node:stream";
import type { JSONRPCMessage } from "@modelcontextprotocol/server";
import { StdioServerTransport, serveStdio } from "@modelcontextprotocol/server/stdio";
import { ZodError } from "zod";
import { errorMessage } from "../error-message.ts";
import { createTodoServer } from "./server.ts";
import type { DescribeError, Todos } from "./tools.ts";

/** How long requests may take that are in progress at the end of the input. */
const FINISH_MS = 10_000;

export interface StdioOptions {
  readonly todos: Todos;
  readonly describe: DescribeError;
  /** The version of this program. */
  readonly version: string;
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
  const { todos, describe, version, input, output, warn, finishMs = FINISH_MS } = options;
  const closed = Promise.withResolvers<void>();
  const onError = (error: unknown): void =>
    warn(error instanceof ZodError ? "ignored a message that is not JSON-RPC 2.0" : errorMessage(error));
  const transport = new ObservedTransport(input, output, finishMs);
  transport.onClosed = closed.resolve;
  const onInternalError = (error: unknown): void => warn(`internal error: ${errorMessage(error)}`);
  const createServer = () => createTodoServer({ todos, version, describe, onInternalError });
  serveStdio(createServer, { transport, onerror: onError });
  transport.observe();
  await closed.promise;
  input.destroy();
}

/**
 * The SDK's transport, which would lose the responses of a script that closes the input at once. It waits for them, and
 * reports its end.
 */
class ObservedTransport extends StdioServerTransport {
  onClosed = (): void => {};
  /** The ids of the requests without a response. */
  readonly #pending = new Set<unknown>();
  readonly #output: Writable;
  readonly #finishMs: number;
  #onAnswered = (): void => {};

  constructor(input: Readable, output: Writable, finishMs: number) {
    super(input, output);
    this.#output = output;
    this.#finishMs = finishMs;
  }

  /** Observes the messages of the client. Call it when the SDK has set its handler. */
  observe(): void {
    const deliver = this.onmessage;
    this.onmessage = (message) => {
      if ("method" in message) {
        // The SDK accepts subscriptions of version 2026-07-28, which end only with the connection.
        if ("id" in message && message.method !== "subscriptions/listen") this.#pending.add(message.id);
        else if (message.method === "notifications/cancelled") this.#settle(message.params?.requestId);
      }
      deliver?.(message);
    };
  }

  override async send(message: JSONRPCMessage): Promise<void> {
    await super.send(message);
    if (!("method" in message)) this.#settle(message.id);
  }

  override async close(): Promise<void> {
    if (this.#pending.size > 0 && this.#output.writable) {
      const answered = Promise.withResolvers<void>();
      this.#onAnswered = answered.resolve;
      const timer = setTimeout(answered.resolve, this.#finishMs);
      await answered.promise;
      clearTimeout(timer);
    }
    await super.close();
    this.onClosed();
  }

  #settle(id: unknown): void {
    this.#pending.delete(id);
    if (this.#pending.size === 0) this.#onAnswered();
  }
}
