import { MIMEType } from "node:util";
import { ServiceError } from "../error.ts";
import { MAX_BODY_BYTES } from "./limits.ts";
import type { HttpServer } from "./route.ts";
import { UnfinishedBodies, type UnfinishedBodiesOptions } from "./unfinished-bodies.ts";

/** The registered name and a common alias (Encoding Standard §4.2). */
const UTF_8_NAMES: readonly string[] = ["utf-8", "utf8"];

// Keeps a byte order mark, so that parsing rejects it.
const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** Reads JSON bodies (RFC 8259). */
export class BodyReader {
  readonly #unfinished: UnfinishedBodies;

  constructor(options: UnfinishedBodiesOptions) {
    this.#unfinished = new UnfinishedBodies(options);
  }

  /**
   * Reads a request's JSON body and returns what `parse` makes of it. Rejects with what `parse` throws; with
   * `unsupported_media_type` for any type but `application/json` and `application/*+json` in UTF-8, or for a content coding;
   * with `body_too_large` past 64 KiB; with `invalid_json` for a body that is empty, incomplete, not valid UTF-8 (a byte
   * order mark included), or not JSON.
   */
  readJson<T>(request: Request, server: HttpServer, parse: (body: unknown) => T): Promise<T> {
    const wrongType = checkType(request);
    if (wrongType !== undefined) return Promise.reject(wrongType);
    return this.#read(request, server, (bytes) => parse(parseJson(bytes)));
  }

  /** Reads a JSON body as readJson does; returns `undefined` for an absent or an empty one, whatever its type. */
  async readJsonIfAny<T>(
    request: Request,
    server: HttpServer,
    parse: (body: unknown) => T,
  ): Promise<T | undefined> {
    // Headers do not show whether a body exists: over HTTP/2, a body needs no header (RFC 9113 §8.1).
    if (request.body === null) return undefined;
    return this.#read(request, server, (bytes) => {
      if (bytes.byteLength === 0) return undefined;
      const wrongType = checkType(request);
      if (wrongType !== undefined) throw wrongType;
      return parse(parseJson(bytes));
    });
  }

  #read<T>(request: Request, server: HttpServer, parse: (bytes: Uint8Array) => T): Promise<T> {
    return new Promise((resolve, reject) => {
      if (Number(request.headers.get("content-length")) > MAX_BODY_BYTES) throw tooLarge();
      const end = this.#unfinished.begin(request, server, reject);
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
}

function parseJson(bytes: Uint8Array): unknown {
  if (bytes.byteLength === 0) throw new ServiceError("invalid_json", { detail: "The body is empty." });
  try {
    return JSON.parse(utf8.decode(bytes));
  } catch (cause) {
    const detail = cause instanceof SyntaxError ? "The body is not JSON." : "The body is not valid UTF-8.";
    throw new ServiceError("invalid_json", { detail, cause });
  }
}

/** Returns `unsupported_media_type` unless a request has a JSON body without a content coding. */
function checkType({ method, headers: sent }: Request): ServiceError | undefined {
  const type = sent.get("content-type");
  const coding = sent.get("content-encoding");
  if (coding === null && type !== null && (type === "application/json" || isJson(type))) return undefined;
  const accepted = { [`Accept-${method === "PATCH" ? "Patch" : "Post"}`]: "application/json" };
  const [detail, headers] =
    coding === null
      ? ["Send the body with Content-Type: application/json, in UTF-8.", accepted]
      : ["Send the body without Content-Encoding.", { ...accepted, "Accept-Encoding": "identity" }];
  return new ServiceError("unsupported_media_type", { detail, headers });
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
