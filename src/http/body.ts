import { MIMEType } from "node:util";
import { ServiceError } from "../error.ts";
import type { Limits } from "./limits.ts";
import type { HttpServer } from "./route.ts";

/** The maximum size of a request body. */
export const MAX_BODY_BYTES = 64 * 1024;

/** The runtime rejects a larger body with an empty 413. It keeps smaller ones in memory until they are complete. */
export const MAX_REQUEST_BYTES = 2 * MAX_BODY_BYTES;

/** The memory that unfinished bodies may use together. */
export const MAX_UNFINISHED_BYTES = 16 * 1024 * 1024;

/** What an unfinished request uses besides its body. */
const REQUEST_BYTES = 4 * 1024;

/** The registered name and a common alias (Encoding Standard §4.2). */
const UTF_8_NAMES: readonly string[] = ["utf-8", "utf8"];

// Keeps a byte order mark, so that parsing rejects it.
const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

export interface BodyReaderOptions {
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
 * Reads JSON bodies (RFC 8259) and limits how long and how many unfinished ones wait. It rejects with `request_timeout`
 * after the time limit. If unfinished bodies are too many or too large together, the network whose bodies are largest loses
 * the one that has waited longest, with `overloaded`.
 */
export class BodyReader {
  readonly #options: BodyReaderOptions;
  /** Bodies that were begun in this turn of the event loop. Most of them are complete in the next one. */
  #begun: Reading[] = [];
  readonly #unfinished = new Map<string, Unfinished>();
  #count = 0;
  #bytes = 0;

  constructor(options: BodyReaderOptions) {
    this.#options = options;
  }

  /**
   * Reads a request's JSON body. Throws or rejects with `unsupported_media_type` for any type but `application/json` and
   * `application/*+json` in UTF-8, or for a content coding; with `body_too_large` past 64 KiB; with `invalid_json` for a
   * body that is empty, incomplete, not valid UTF-8 (a byte order mark included), or not JSON.
   */
  readJson(request: Request, server: HttpServer): Promise<unknown> {
    requireJson(request);
    return this.#read(request, server, parseBody);
  }

  /** Reads a JSON body as readJson does; returns `undefined` for an absent or an empty one, whatever its type. */
  async readJsonIfAny(request: Request, server: HttpServer): Promise<unknown> {
    // Headers do not show whether a body exists: over HTTP/2, a body needs no header (RFC 9113 §8.1).
    if (request.body === null) return undefined;
    return this.#read(request, server, (bytes) => {
      if (bytes.byteLength === 0) return undefined;
      requireJson(request);
      return parseJson(bytes);
    });
  }

  #read(request: Request, server: HttpServer, parse: (bytes: Uint8Array) => unknown): Promise<unknown> {
    if (Number(request.headers.get("content-length")) > MAX_BODY_BYTES) throw tooLarge();
    return new Promise((resolve, reject) => {
      const reading: Reading = { request, server, reject, hasEnded: false, leave: undefined };
      if (this.#begun.push(reading) === 1) setImmediate(this.#awaitUnfinished);
      const end = (): void => {
        reading.hasEnded = true;
        reading.leave?.();
      };
      request.bytes().then(
        (bytes) => {
          end();
          try {
            // A chunked body has no length in advance.
            if (bytes.byteLength > MAX_BODY_BYTES) throw tooLarge();
            resolve(parse(bytes));
          } catch (error) {
            reject(error);
          }
        },
        (cause) => {
          end();
          reject(new ServiceError("invalid_json", { detail: "The body is incomplete.", cause }));
        },
      );
    });
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

/** Over HTTP/1.1, the rest of the body would otherwise keep the connection open. The runtime omits it over HTTP/2. */
const CLOSE = { Connection: "close" };
// Created once, because the stack trace is most of an error's cost.
const TIMED_OUT = new ServiceError("request_timeout", {
  detail: "The body did not arrive in time. Send the complete request again.",
  headers: CLOSE,
});
const TOO_MANY = new ServiceError("overloaded", {
  detail: "Too many bodies are unfinished. Send the complete request again, later.",
  headers: CLOSE,
});

/** Returns whether a body was rejected before it was complete. Its response must close the connection. */
export const isUnfinished = (error: unknown): boolean => error === TIMED_OUT || error === TOO_MANY;

function parseBody(bytes: Uint8Array): unknown {
  if (bytes.byteLength === 0) throw new ServiceError("invalid_json", { detail: "The body is empty." });
  return parseJson(bytes);
}

function parseJson(bytes: Uint8Array): unknown {
  try {
    return JSON.parse(utf8.decode(bytes));
  } catch (cause) {
    const detail = cause instanceof SyntaxError ? "The body is not JSON." : "The body is not valid UTF-8.";
    throw new ServiceError("invalid_json", { detail, cause });
  }
}

function requireJson({ method, headers }: Request): void {
  const type = headers.get("content-type");
  const coding = headers.get("content-encoding");
  if (type === "application/json" && coding === null) return;
  const accepted = { [`Accept-${method === "PATCH" ? "Patch" : "Post"}`]: "application/json" };
  if (coding !== null) {
    const detail = "Send the body without Content-Encoding.";
    throw new ServiceError("unsupported_media_type", {
      detail,
      headers: { ...accepted, "Accept-Encoding": "identity" },
    });
  }
  if (type === null || !isJson(type)) {
    const detail = "Send the body with Content-Type: application/json, in UTF-8.";
    throw new ServiceError("unsupported_media_type", { detail, headers: accepted });
  }
}

function isJson(type: string): boolean {
  try {
    const { type: kind, subtype, params } = new MIMEType(type);
    const charset = params.get("charset")?.toLowerCase() ?? "utf-8";
    return (
      kind === "application" &&
      (subtype === "json" || subtype.endsWith("+json")) &&
      UTF_8_NAMES.includes(charset)
    );
  } catch {
    return false;
  }
}

const tooLarge = (): ServiceError =>
  new ServiceError("body_too_large", { detail: `The limit is ${MAX_BODY_BYTES} bytes.` });
