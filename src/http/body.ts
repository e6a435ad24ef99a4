import { MIMEType } from "node:util";
import { Failure } from "../failure.ts";

export const MAX_BODY_BYTES = 64 * 1024;

// Keeps a byte order mark, which then is no JSON.
const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/**
 * Reads a request's JSON body. Throws `unsupported_media_type` for any type but `application/json` and
 * `application/*+json` in UTF-8, or for a content coding; `body_too_large` past 64 KiB; `invalid_json`
 * for what is empty, no valid UTF-8 (a byte order mark included), or no JSON (RFC 8259).
 */
export async function readJson(request: Request): Promise<unknown> {
  requireJson(request);
  const bytes = await readBytes(request);
  if (bytes.byteLength === 0) throw new Failure("invalid_json", { detail: "The body is empty." });
  return parseJson(bytes);
}

/** Reads a JSON body as readJson does, or gives `undefined` where none is sent, or an empty one, of whatever type. */
export async function readJsonIfAny(request: Request): Promise<unknown> {
  // Not by its headers: over HTTP/2 a body needs none (RFC 9113 §8.1).
  if (request.body === null) return undefined;
  const bytes = await readBytes(request);
  if (bytes.byteLength === 0) return undefined;
  requireJson(request);
  return parseJson(bytes);
}

async function readBytes(request: Request): Promise<ArrayBuffer | Uint8Array> {
  const length = request.headers.get("content-length");
  if (Number(length) > MAX_BODY_BYTES) throw tooLarge();
  // What is sent in chunks has no length: it is counted as it arrives.
  return (length === null ? readCounting(request.body) : request.arrayBuffer()).catch(notWhole);
}

function parseJson(bytes: ArrayBuffer | Uint8Array): unknown {
  try {
    return JSON.parse(utf8.decode(bytes));
  } catch (cause) {
    const detail =
      cause instanceof SyntaxError ? "The body cannot be read as JSON." : "The body is not valid UTF-8.";
    throw new Failure("invalid_json", { detail, cause });
  }
}

function notWhole(cause: unknown): never {
  throw cause instanceof Failure
    ? cause
    : new Failure("invalid_json", { detail: "The body did not arrive whole.", cause });
}

function requireJson({ method, headers }: Request): void {
  const type = headers.get("content-type");
  const coding = headers.get("content-encoding");
  if (type === "application/json" && coding === null) return;
  const accepted = { [`Accept-${method === "PATCH" ? "Patch" : "Post"}`]: "application/json" };
  if (coding !== null) {
    const detail = "Send the body as it is, without Content-Encoding.";
    throw new Failure("unsupported_media_type", {
      detail,
      headers: { ...accepted, "Accept-Encoding": "identity" },
    });
  }
  if (type === null || !isJson(type)) {
    const detail = "Send the body with Content-Type: application/json, in UTF-8.";
    throw new Failure("unsupported_media_type", { detail, headers: accepted });
  }
}

function isJson(type: string): boolean {
  try {
    const { type: kind, subtype, params } = new MIMEType(type);
    const charset = params.get("charset")?.toLowerCase() ?? "utf-8";
    return kind === "application" && (subtype === "json" || subtype.endsWith("+json")) && charset === "utf-8";
  } catch {
    return false;
  }
}

/** Reads a body no further than it may be long. */
async function readCounting(body: ReadableStream<Uint8Array> | null): Promise<Buffer> {
  const chunks: Uint8Array[] = [];
  let length = 0;
  for await (const chunk of body ?? []) {
    length += chunk.length;
    if (length > MAX_BODY_BYTES) throw tooLarge();
    chunks.push(chunk);
  }
  return Buffer.concat(chunks, length);
}

const tooLarge = (): Failure =>
  new Failure("body_too_large", { detail: `A body may have at most ${MAX_BODY_BYTES} bytes.` });
