import { createHash } from "node:crypto";
import { readFile } from "node:fs/promises";
import { promisify } from "node:util";
import { brotliCompress, brotliDecompress, gzip } from "node:zlib";
import built from "../../web/built/pages.json" with { type: "json" };
import swaggerUiCss from "../../web/built/swagger-ui.css.br" with { type: "file" };
import swaggerUiJs from "../../web/built/swagger-ui.js.br" with { type: "file" };
import { Failure } from "../failure.ts";
import { reply } from "./reply.ts";
import type { RoutedRequest } from "./route.ts";

/** Scripts, styles and requests of this server alone, nothing inline, no text made into markup (CSP 3, Trusted Types). */
const STRICT = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "img-src 'self'",
  "connect-src 'self'",
  "form-action 'self'",
  "base-uri 'none'",
  "frame-ancestors 'none'",
  "require-trusted-types-for 'script'",
  "trusted-types 'none'",
].join("; ");

/** The renderer of /docs has icons in its style sheet, and makes markup of its own; what it shows is this server's document. */
const FOR_DOCS = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "img-src 'self' data:",
  "connect-src 'self'",
  "form-action 'none'",
  "base-uri 'none'",
  "frame-ancestors 'none'",
].join("; ");

/** A page and all that it names keep for a year: another content has another name. */
const FOR_EVER = "public, max-age=31536000, immutable";

type Bytes = Uint8Array<ArrayBuffer>;
type Coding = "br" | "gzip" | "identity";
/** A text in each coding; each is made when it is first asked for, and kept. */
type Coded = Readonly<Record<Coding, () => Promise<Bytes>>>;

interface Asset {
  readonly type: string;
  readonly text?: string;
  /** One of FILES. */
  readonly file?: string;
}

const FILES: Readonly<Record<string, string>> = {
  "swagger-ui.js": swaggerUiJs,
  "swagger-ui.css": swaggerUiCss,
};

const assets = new Map(
  Object.entries<Asset>(built.assets).map(([name, { type, text, file = "" }]) => {
    const coded = text === undefined ? fromBrotli(FILES[file] ?? file) : fromText(text);
    return [name, { type, coded }] as const;
  }),
);

/** The list of to-dos, the keys, and the reference of the API, for people. */
export const todosPage = page(built.pages.todos, STRICT);
export const keysPage = page(built.pages.keys, STRICT);
export const docsPage = page(built.pages.docs, FOR_DOCS);

/** `/assets/:name`: what the pages name. */
export async function asset(request: RoutedRequest): Promise<Response> {
  const found = assets.get(request.params.name ?? "");
  if (found === undefined) throw new Failure("route_not_found");
  const { type, coded } = found;
  return send(request, coded, { "Content-Type": type, "Cache-Control": FOR_EVER });
}

/** Whether who asks would rather have HTML (RFC 9110 §12.5.1): a browser says so, a program that takes anything does not. */
export function prefersHtml({ headers }: Request): boolean {
  const accept = headers.get("accept") ?? "";
  const html = qualityOf(accept, "text/html");
  return html > 0 && html >= Math.max(qualityOf(accept, "text/plain"), qualityOf(accept, "application/json"));
}

function page(html: string, contentSecurityPolicy: string): (request: Request) => Promise<Response> {
  const coded = fromText(html);
  // Weak: the same page in another coding has it too (RFC 9110 §8.8.1).
  const etag = `W/"${createHash("sha256").update(html).digest("base64url").slice(0, 16)}"`;
  const headers = {
    "Cache-Control": "no-cache",
    ETag: etag,
    "Content-Security-Policy": contentSecurityPolicy,
    "Referrer-Policy": "same-origin",
  };
  return async (request) => {
    if (request.headers.get("if-none-match") === etag) return reply(304, { ...headers, Vary: VARY_PAGE });
    return send(request, coded, { ...headers, "Content-Type": "text/html; charset=utf-8", Vary: VARY_PAGE });
  };
}

const VARY_PAGE = "Origin, Accept, Accept-Encoding";

async function send(request: Request, coded: Coded, headers: Readonly<Record<string, string>>) {
  const accepted = request.headers.get("accept-encoding") ?? "";
  const coding = (["br", "gzip"] as const).find((name) => qualityOf(accepted, name) > 0) ?? "identity";
  const encoding = coding === "identity" ? undefined : { "Content-Encoding": coding };
  return reply(200, { Vary: "Origin, Accept-Encoding", ...headers, ...encoding }, await coded[coding]());
}

/** How much something is wanted that a header names, such as Accept; 0 when it does not name it (RFC 9110 §12.4.2). */
function qualityOf(header: string, name: string): number {
  for (const entry of header.split(",")) {
    const [value = "", ...parameters] = entry.split(";").map((part) => part.trim().toLowerCase());
    if (value !== name) continue;
    const quality = parameters.find((parameter) => parameter.startsWith("q="));
    return quality === undefined ? 1 : Number(quality.slice(2)) || 0;
  }
  return 0;
}

function fromText(text: string): Coded {
  const bytes = new TextEncoder().encode(text);
  return {
    identity: async () => bytes,
    br: once(async () => owned(await promisify(brotliCompress)(bytes))),
    gzip: once(async () => owned(await promisify(gzip)(bytes))),
  };
}

function fromBrotli(path: string): Coded {
  const br = once(async () => owned(await readFile(path)));
  const identity = once(async () => owned(await promisify(brotliDecompress)(await br())));
  return { br, identity, gzip: once(async () => owned(await promisify(gzip)(await identity()))) };
}

/** Bytes that are nobody's pool's. */
const owned = (bytes: Uint8Array): Bytes => new Uint8Array(bytes);

/** What is made when it is first asked for; what failed is tried anew. */
function once<T>(make: () => Promise<T>): () => Promise<T> {
  let made: Promise<T> | undefined;
  return () => {
    made ??= make().catch((error) => {
      made = undefined;
      throw error;
    });
    return made;
  };
}
