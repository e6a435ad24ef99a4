import { ServiceError } from "../error.ts";
import { type Limits, MAX_REQUEST_BYTES } from "./limits.ts";
import type { HttpServer } from "./route.ts";

/** The memory that unfinished bodies may use together. */
export const MAX_UNFINISHED_BYTES = 16 * 1024 * 1024;

/** What an unfinished request uses besides its body. */
const REQUEST_BYTES = 4 * 1024;

export interface UnfinishedBodiesOptions {
  /** Returns the network that a request comes from. */
  readonly getNetwork: (request: Request, server: HttpServer) => string;
  readonly limits: Limits;
  /** Called with its network for each request that is rejected because there are too many. */
  readonly onReject: (network: string) => void;
}

/** The unfinished bodies of one network, the one that has waited longest first, and the bytes that they may use. */
interface Unfinished {
  readonly readings: Set<Reading>;
  bytes: number;
}

/** A body that is read. */
interface Reading {
  readonly request: Request;
  readonly server: HttpServer;
  readonly reject: (error: unknown) => void;
  hasEnded: boolean;
  /** Stops waiting, for a body that was unfinished after one turn of the event loop. */
  leave: (() => void) | undefined;
}

/**
 * Limits how long and how many unfinished bodies wait. A body is rejected with `request_timeout` after the time limit. If
 * unfinished bodies are too many or too large together, the network whose bodies are largest loses the one that has waited
 * longest, with `overloaded`.
 */
export class UnfinishedBodies {
  readonly #options: UnfinishedBodiesOptions;
  /** Bodies that were begun in this turn of the event loop. Most of them are complete in the next one. */
  #begun: Reading[] = [];
  readonly #unfinished = new Map<string, Unfinished>();
  #count = 0;
  #bytes = 0;

  constructor(options: UnfinishedBodiesOptions) {
    this.#options = options;
  }

  /** Notes that a body is read. Returns a function to call when it has arrived or failed. */
  begin(request: Request, server: HttpServer, reject: (error: unknown) => void): () => void {
    const reading: Reading = { request, server, reject, hasEnded: false, leave: undefined };
    if (this.#begun.push(reading) === 1) setImmediate(this.#awaitUnfinished);
    return () => {
      reading.hasEnded = true;
      reading.leave?.();
    };
  }

  readonly #awaitUnfinished = (): void => {
    const begun = this.#begun;
    this.#begun = [];
    for (const reading of begun) if (!reading.hasEnded) this.#await(reading);
  };

  #await(reading: Reading): void {
    const network = this.#options.getNetwork(reading.request, reading.server);
    const unfinished = this.#unfinished.get(network) ?? { readings: new Set(), bytes: 0 };
    this.#unfinished.set(network, unfinished);
    const bytes = REQUEST_BYTES + maxBytes(reading.request);
    unfinished.readings.add(reading);
    unfinished.bytes += bytes;
    this.#bytes += bytes;
    this.#count++;
    const timer = setTimeout(() => fail(reading, TIMED_OUT), this.#options.limits.bodyTimeoutMs);
    reading.leave = () => {
      reading.leave = undefined;
      clearTimeout(timer);
      unfinished.readings.delete(reading);
      if (unfinished.readings.size === 0) this.#unfinished.delete(network);
      unfinished.bytes -= bytes;
      this.#bytes -= bytes;
      this.#count--;
    };
    // A half, so that requests without a complete body never reach the limit of concurrent requests.
    const maxCount = Math.ceil(this.#options.limits.maxRequests / 2);
    while (this.#count > maxCount || this.#bytes > MAX_UNFINISHED_BYTES) this.#rejectOne();
  }

  #rejectOne(): void {
    const [network, { readings }] = [...this.#unfinished].reduce((one, other) =>
      other[1].bytes > one[1].bytes ? other : one,
    );
    const [oldest] = readings;
    if (oldest === undefined) return;
    this.#options.onReject(network);
    fail(oldest, TOO_MANY);
  }
}

/** Returns how large a body may become. Without a declared length, it may be as large as the runtime accepts. */
function maxBytes({ headers }: Request): number {
  const declared = headers.get("content-length");
  return declared !== null && /^\d+$/.test(declared) ? Number(declared) : MAX_REQUEST_BYTES;
}

function fail(reading: Reading, error: ServiceError): void {
  reading.leave?.();
  reading.reject(error);
}

// Created once, because the stack trace is most of an error's cost.
const TIMED_OUT = new ServiceError("request_timeout", {
  detail: "The body did not arrive in time. Send the complete request again.",
});
const TOO_MANY = new ServiceError("overloaded", {
  detail: "Too many bodies are unfinished. Send the complete request again, later.",
});

/**
 * Returns whether a body was rejected before it was complete. Its response must close the connection: over HTTP/1.1, the rest
 * of the body would otherwise keep it open.
 */
export const isUnfinished = (error: unknown): boolean => error === TIMED_OUT || error === TOO_MANY;
