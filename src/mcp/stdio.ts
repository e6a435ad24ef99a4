import type { Readable, Writable } from "node:stream";
import {
  isJSONRPCRequest,
  type JSONRPCMessage,
  ProtocolError,
  ProtocolErrorCode,
  parseJSONRPCMessage,
  type RequestId,
  type Server,
  SUBSCRIPTION_ID_META_KEY,
  type Transport,
} from "@modelcontextprotocol/server";
import { serveStdio } from "@modelcontextprotocol/server/stdio";
import { errorMessage } from "../error-message.ts";
import { TodoApiError } from "../sdk/client.ts";
import { isObject } from "../validation.ts";
import { readLines } from "./lines.ts";
import { createTodoServer, type Subscriptions, TODOS_URI, toProtocolError } from "./server.ts";
import type { DescribeError, Todos } from "./tools.ts";
import { ChangeWatch } from "./watch.ts";

/** The maximum size of a message, as of a request body over HTTP. */
export const MAX_MESSAGE_BYTES = 64 * 1024;
/** The maximum number of requests without a response. The next one is read after a response. */
const MAX_PENDING = 64;
/** How long requests may continue after the end of the input. */
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
}

/** Serves one assistant until the input ends or the output fails. */
export async function serveOverStdio(options: StdioOptions): Promise<void> {
  const { todos, describe, version, input, output, warn } = options;
  const { promise: closed, resolve: onClosed } = Promise.withResolvers<void>();
  let server: Server | undefined;
  const watch = new ChangeWatch(
    todos,
    () => {
      server?.sendResourceUpdated({ uri: TODOS_URI }).catch((error) => warn(errorMessage(error)));
    },
    (error) => {
      const reason = error instanceof TodoApiError ? describe(error) : errorMessage(error);
      warn(`changes of the to-dos are no longer reported: ${reason}`);
    },
  );
  const subscriptions: Subscriptions = {
    add: (subscriber) =>
      watch.add(subscriber).catch((error) => {
        throw error instanceof TodoApiError ? toProtocolError(error, describe) : error;
      }),
    delete: (subscriber) => watch.delete(subscriber),
  };
  const transport = new LineTransport(input, output, subscriptions, onClosed);
  serveStdio(
    () => {
      const onInternalError = (error: unknown): void => warn(`internal error: ${errorMessage(error)}`);
      server = createTodoServer({ todos, version, describe, subscriptions, onInternalError });
      return server;
    },
    { transport },
  );
  await closed;
  watch.close();
}

/**
 * One JSON-RPC message per line. The SDK's own transport ignores lines that are not JSON, and closes the connection after
 * a long line. This one answers both with an error.
 */
class LineTransport implements Transport {
  onclose: Transport["onclose"];
  onerror: Transport["onerror"];
  onmessage: Transport["onmessage"];
  readonly #input: Readable;
  readonly #output: Writable;
  readonly #subscriptions: Subscriptions;
  readonly #onClosed: () => void;
  readonly #pending = new Set<RequestId>();
  /** All writes that wait for a slow client share it, because an emitter warns about more than 10 listeners. */
  #drained: Promise<void> | undefined;
  #onSettled = () => {};
  #isClosed = false;

  constructor(input: Readable, output: Writable, subscriptions: Subscriptions, onClosed: () => void) {
    this.#input = input;
    this.#output = output;
    this.#subscriptions = subscriptions;
    this.#onClosed = onClosed;
  }

  async start(): Promise<void> {
    // The client has closed its end.
    this.#output.on("error", () => this.close());
    this.#read().then(
      () => this.close(),
      (error) => {
        this.onerror?.(error);
        this.close();
      },
    );
  }

  async send(message: JSONRPCMessage): Promise<void> {
    if (!("method" in message) && message.id !== undefined) this.#settle(message.id);
    const subscriber = subscriberOf(message);
    if (subscriber === undefined) return this.#write(message);
    try {
      await this.#subscriptions.add(subscriber);
    } catch (error) {
      await this.#reply(subscriber, error);
      // Makes the SDK forget the subscription that it has already accepted.
      const params = { requestId: subscriber };
      this.onmessage?.({ jsonrpc: "2.0", method: "notifications/cancelled", params });
      return;
    }
    await this.#write(message);
  }

  async close(): Promise<void> {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#onSettled();
    this.#input.destroy();
    this.onclose?.();
    this.#onClosed();
  }

  async #read(): Promise<void> {
    for await (const line of readLines(this.#input, MAX_MESSAGE_BYTES)) {
      await this.#receive(line);
      while (this.#pending.size >= MAX_PENDING && !this.#isClosed) await this.#nextSettled();
    }
    const deadline = Promise.withResolvers<void>();
    const timer = setTimeout(deadline.resolve, FINISH_MS);
    const finish = async (): Promise<void> => {
      while (this.#pending.size > 0 && !this.#isClosed) await this.#nextSettled();
    };
    await Promise.race([finish(), deadline.promise]);
    clearTimeout(timer);
  }

  async #receive(line: Uint8Array | undefined): Promise<void> {
    try {
      const message = line === undefined ? tooLong() : parse(line);
      if (message === undefined) return;
      if (isJSONRPCRequest(message)) {
        // A subscription gets its response when it ends.
        if (message.method !== "subscriptions/listen") this.#pending.add(message.id);
      } else if ("method" in message && message.method === "notifications/cancelled") {
        this.#cancel(message.params?.requestId);
      }
      this.onmessage?.(message);
    } catch (error) {
      if (!(error instanceof InvalidMessageError)) throw error;
      await this.#reply(error.id, error.error);
    }
  }

  /** A cancelled request gets no response. */
  #cancel(id: unknown): void {
    this.#subscriptions.delete(id);
    if (typeof id === "string" || typeof id === "number") this.#settle(id);
  }

  #settle(id: RequestId): void {
    if (this.#pending.delete(id)) this.#onSettled();
  }

  #nextSettled(): Promise<void> {
    return new Promise((resolve) => {
      this.#onSettled = resolve;
    });
  }

  /** Sends an error. JSON-RPC 2.0 §5 asks for the id `null` if the id of the request is not known. */
  async #reply(id: RequestId | null, error: unknown): Promise<void> {
    const { code, message, data } =
      error instanceof ProtocolError
        ? error
        : { code: ProtocolErrorCode.InternalError, message: "Internal error", data: undefined };
    await this.#write({ jsonrpc: "2.0", id, error: { code, message, ...(data !== undefined && { data }) } });
  }

  /** Resolves when the client has room for more. */
  #write(message: object): Promise<void> {
    if (this.#isClosed) return Promise.resolve();
    if (this.#output.write(`${JSON.stringify(message)}\n`)) return Promise.resolve();
    this.#drained ??= new Promise((resolve) => {
      const done = (): void => {
        this.#output.off("drain", done).off("error", done);
        this.#drained = undefined;
        resolve();
      };
      this.#output.on("drain", done).on("error", done);
    });
    return this.#drained;
  }
}

/** A line that is not a message, and the response to it. */
class InvalidMessageError extends Error {
  override readonly name = "InvalidMessageError";
  readonly id: RequestId | null;
  readonly error: ProtocolError;

  constructor(code: ProtocolErrorCode, message: string, id: RequestId | null = null) {
    super(message);
    this.id = id;
    this.error = new ProtocolError(code, message);
  }
}

const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** Returns the message on a line, or `undefined` for a blank line. */
function parse(line: Uint8Array): JSONRPCMessage | undefined {
  let value: unknown;
  try {
    const text = utf8.decode(line);
    if (text.trim() === "") return undefined;
    value = JSON.parse(text);
  } catch {
    throw new InvalidMessageError(
      ProtocolErrorCode.ParseError,
      "Parse error: send JSON in UTF-8, one message per line",
    );
  }
  if (Array.isArray(value))
    throw new InvalidMessageError(
      ProtocolErrorCode.InvalidRequest,
      "Batches are not supported: send one message per line",
    );
  try {
    return parseJSONRPCMessage(value);
  } catch {
    throw new InvalidMessageError(
      ProtocolErrorCode.InvalidRequest,
      "Not a JSON-RPC 2.0 message",
      idOf(value),
    );
  }
}

function tooLong(): never {
  const message = `The message is too large: the limit is ${MAX_MESSAGE_BYTES} bytes`;
  throw new InvalidMessageError(ProtocolErrorCode.InvalidRequest, message);
}

function idOf(value: unknown): RequestId | null {
  const id = isObject(value) ? value.id : undefined;
  return typeof id === "string" || typeof id === "number" ? id : null;
}

/** Returns the id of a subscription to the resource that the SDK accepts with this message. */
function subscriberOf(message: JSONRPCMessage): RequestId | undefined {
  if (!("method" in message) || message.method !== "notifications/subscriptions/acknowledged")
    return undefined;
  const { _meta: meta, notifications } = message.params ?? {};
  const uris = isObject(notifications) ? notifications.resourceSubscriptions : undefined;
  const id = isObject(meta) ? meta[SUBSCRIPTION_ID_META_KEY] : undefined;
  const isOurs = Array.isArray(uris) && uris.includes(TODOS_URI);
  return isOurs && (typeof id === "string" || typeof id === "number") ? id : undefined;
}
