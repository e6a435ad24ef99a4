import type { Readable, Writable } from "node:stream";
import type { JSONRPCMessage, Server } from "@modelcontextprotocol/server";
import { StdioServerTransport, serveStdio } from "@modelcontextprotocol/server/stdio";
import { ZodError } from "zod";
import { errorMessage } from "../error-message.ts";
import { TodoApiError } from "../sdk/client.ts";
import { createTodoServer, TODOS_URI } from "./server.ts";
import type { DescribeError, Todos } from "./tools.ts";

/** Changes within this time are reported together, because a client reads the whole list after each report. */
const COALESCE_MS = 100;
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
  let server: Server | undefined;
  let stream: AbortController | undefined;

  const subscriptions = {
    start: (): void => {
      if (stream !== undefined) return;
      const own = new AbortController();
      stream = own;
      reportChanges(todos, own.signal, () => {
        server?.sendResourceUpdated({ uri: TODOS_URI }).catch(onError);
      }).catch((error) => {
        if (stream === own) stream = undefined;
        const reason = error instanceof TodoApiError ? describe(error) : errorMessage(error);
        warn(`changes of the to-dos are not reported: ${reason}`);
      });
    },
    stop: (): void => {
      stream?.abort();
      stream = undefined;
    },
  };
  const transport = new ObservedTransport(input, output, finishMs);
  transport.onSubscription = subscriptions.start;
  transport.onClosed = closed.resolve;
  serveStdio(
    () => {
      const onInternalError = (error: unknown): void => warn(`internal error: ${errorMessage(error)}`);
      server = createTodoServer({ todos, version, describe, subscriptions, onInternalError });
      return server;
    },
    { transport, onerror: onError },
  );
  transport.observe();
  await closed.promise;
  subscriptions.stop();
  input.destroy();
}

/**
 * The SDK's transport, which would lose the responses of a script that closes the input at once. It waits for them. It reports
 * its end, and subscriptions of version 2026-07-28, which the SDK accepts by itself.
 */
class ObservedTransport extends StdioServerTransport {
  onSubscription = (): void => {};
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
        // A subscription ends only with the connection.
        if ("id" in message && message.method !== "subscriptions/listen") this.#pending.add(message.id);
        else if (message.method === "notifications/cancelled") this.#settle(message.params?.requestId);
      }
      deliver?.(message);
    };
  }

  override async send(message: JSONRPCMessage): Promise<void> {
    if ("method" in message && message.method === "notifications/subscriptions/acknowledged")
      this.onSubscription();
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

/** Reports changes until the signal aborts, and each connection, because changes may have been missed before. */
async function reportChanges(todos: Todos, signal: AbortSignal, onChange: () => void): Promise<void> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  try {
    for await (const { type } of todos.events({ signal }))
      if (type !== "disconnected")
        timer ??= setTimeout(() => {
          timer = undefined;
          onChange();
        }, COALESCE_MS);
  } finally {
    clearTimeout(timer);
  }
}
