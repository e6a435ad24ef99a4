import { hash } from "node:crypto";
import { promisify } from "node:util";
import errorPages from "../../../web/built/error-pages.json" with { type: "json" };
import { ERRORS, type ErrorCode, ServiceError } from "../../error.ts";
import { matchesEtag } from "../request.ts";
import { respond } from "../response.ts";
import type { RoutedRequest } from "../route.ts";

/** Only scripts, styles and requests of this server, nothing inline (CSP 3), and no HTML from strings (Trusted Types). */
const PAGE_CSP = [
  "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; manifest-src 'self'",
  "base-uri 'none'; frame-ancestors 'none'; img-src 'self'; worker-src 'self'; form-action 'self'",
  "require-trusted-types-for 'script'; trusted-types service-worker",
].join("; ");

/** The service worker may only send requests to this server. */
const WORKER_CSP = "default-src 'none'; connect-src 'self'; frame-ancestors 'none'";

/** Lets clients cache an asset for a year, because its name changes with its content. */
const IMMUTABLE = "public, max-age=31536000, immutable";

const HTML = "text/html; charset=utf-8";

/** The content codings in the server's order of preference. */
const CODINGS = ["br", "gzip", "identity"] as const;
type Coding = (typeof CODINGS)[number];
/** A text in each coding, encoded on first use and kept as a Blob that responses share. */
type Coded = (coding: Coding) => Promise<Blob>;

interface Asset {
  readonly type: string;
  readonly text?: string;
  /** The bytes of an icon. */
  readonly base64?: string;
}

/** Returns a function that makes a value at its first call. After a failure, the next call tries again. */
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

/** Loads the pages and their assets. A service that only programs use never does. */
const loadBuilt = async () =>
  (await import("../../../web/built/pages.json", { with: { type: "json" } })).default;

const loadAssets = once(async () => {
  const { assets } = await loadBuilt();
  return new Map(
    Object.entries<Asset>(assets).map(([name, { type, text = "", base64 }]) => {
      const coded = fromContent(base64 === undefined ? text : Buffer.from(base64, "base64"));
      return [name, { type, coded }] as const;
    }),
  );
});

const PLAIN_TEXT_HOME = `This is a to-do service.

GET  /api/todos          the to-dos; POST {"title": "buy milk"} adds one
GET  /api/events         a stream of every change
GET  /api/whoami         your name (needs a bearer token)
GET  /admin/             a greeting (needs a user and a password)
GET  /api/openapi.json   the OpenAPI document; /docs shows it

Open this page in a browser to see the list.
`;

/** Returns the page of the to-dos, or a short text for programs. */
export const home = (request: Request): Response | Promise<Response> =>
  prefersHtml(request)
    ? todosPage(request)
    : respond(200, { "Content-Type": "text/plain; charset=utf-8", Vary: "Origin, Accept" }, PLAIN_TEXT_HOME);

/** Handle the HTML pages: the to-dos, the API keys and the API reference. */
const todosPage = revalidated(async () => (await loadBuilt()).pages.todos, HTML);
export const keysPage = revalidated(async () => (await loadBuilt()).pages.keys, HTML);
export const docsPage = revalidated(async () => (await loadBuilt()).pages.docs, HTML);

/** Handles the script of the service worker. */
const loadWorker = async () => (await loadBuilt()).serviceWorker;
export const serviceWorker = revalidated(loadWorker, "text/javascript; charset=utf-8", WORKER_CSP);

/** Returns an asset of a page (`/assets/:name`). Throws `route_not_found` for an unknown name. */
export async function asset(request: RoutedRequest): Promise<Response> {
  const found = (await loadAssets()).get(request.params.name ?? "");
  if (found === undefined) throw new ServiceError("route_not_found");
  const { type, coded } = found;
  return send(request, coded, { "Content-Type": type, "Cache-Control": IMMUTABLE });
}

/** Returns a handler of a JSON text that does not change, in the coding that the client prefers. */
export function compressedJson(load: () => Promise<string>): (request: Request) => Promise<Response> {
  const prepare = once(async () => fromContent(await load()));
  return async (request) => send(request, await prepare(), { "Content-Type": "application/json" });
}

const loadIcon = once(async () => new Blob([Buffer.from((await loadBuilt()).favicon, "base64")]));

const ICON_HEADERS = { "Content-Type": "image/vnd.microsoft.icon", "Cache-Control": "public, max-age=86400" };

/** Returns `/favicon.ico`, which browsers request after every response that names no icon. */
export const favicon = async (): Promise<Response> => respond(200, ICON_HEADERS, await loadIcon());

/** Returns whether the client prefers HTML (RFC 9110 §12.5.1). Browsers name it explicitly; other programs do not. */
export function prefersHtml({ headers }: Request): boolean {
  const weights = parseWeights(headers.get("accept") ?? "");
  const getWeight = (type: string): number => weights.get(type) ?? 0;
  const html = getWeight("text/html");
  return html > 0 && html >= Math.max(getWeight("text/plain"), getWeight("application/json"));
}

/** The pages of the errors that a person can meet by opening an address. */
const ERROR_PAGES: Partial<Readonly<Record<ErrorCode, Blob>>> = {
  route_not_found: new Blob([errorPages.notFound]),
  https_required: new Blob([errorPages.httpsRequired]),
  unauthorized: new Blob([errorPages.unauthorized]),
  misdirected_host: new Blob([errorPages.misdirected]),
};

/**
 * Returns the HTML page of an error if a browser opens an address: for `route_not_found`, `https_required`, `misdirected_host`, and
 * for `unauthorized` where the browser can ask for a password. Returns undefined below `/api/`, for other errors, and for other clients.
 * No cache stores the page, because other clients get JSON.
 */
export function errorPage({ code, headers }: ServiceError, request: Request): Response | undefined {
  const { method, url } = request;
  const html = ERROR_PAGES[code];
  if (html === undefined || (method !== "GET" && method !== "HEAD") || !prefersHtml(request))
    return undefined;
  // If the Host field is invalid, the runtime's URL is only a path.
  if (URL.parse(url, "http://localhost")?.pathname.startsWith("/api/") !== false) return undefined;
  if (code === "unauthorized" && headers["WWW-Authenticate"]?.includes("Basic realm=") !== true)
    return undefined;
  return respond(
    ERRORS[code].status,
    {
      ...headers,
      "Content-Type": HTML,
      "Cache-Control": "no-store",
      "Content-Security-Policy": PAGE_CSP,
      "Referrer-Policy": "same-origin",
      Vary: `${headers.Vary ?? "Origin"}, Accept`,
    },
    html,
  );
}

/** Returns a handler of a text that clients store and revalidate each time. */
function revalidated(
  load: () => Promise<string>,
  type: string,
  contentSecurityPolicy = PAGE_CSP,
): (request: Request) => Promise<Response> {
  const prepare = once(async () => {
    const text = await load();
    // Weak, because all codings of a text share the tag (RFC 9110 §8.8.1).
    return { coded: fromContent(text), etag: `W/"${hash("sha256", text, "base64url").slice(0, 16)}"` };
  });
  return async (request) => {
    const { coded, etag } = await prepare();
    const headers = {
      "Cache-Control": "no-cache",
      ETag: etag,
      "Content-Security-Policy": contentSecurityPolicy,
      "Referrer-Policy": "same-origin",
    };
    const ifNoneMatch = request.headers.get("if-none-match");
    if (ifNoneMatch !== null && matchesEtag(ifNoneMatch, etag))
      return respond(304, { ...headers, Vary: VARY_PAGE });
    return send(request, coded, { ...headers, "Content-Type": type, Vary: VARY_PAGE });
  };
}

const VARY_PAGE = "Origin, Accept, Accept-Encoding";

async function send(request: Request, coded: Coded, headers: Readonly<Record<string, string>>) {
  const coding = codingFor(request.headers.get("accept-encoding") ?? "");
  const encoding = coding === "identity" ? undefined : { "Content-Encoding": coding };
  return respond(200, { Vary: "Origin, Accept-Encoding", ...headers, ...encoding }, await coded(coding));
}

/** Returns the coding with the greatest weight, or identity if no coding has one (RFC 9110 §12.5.3). */
function codingFor(acceptEncoding: string): Coding {
  const weights = parseWeights(acceptEncoding);
  const weightOf = (coding: Coding): number => weights.get(coding) ?? weights.get("*") ?? 0;
  const accepted = CODINGS.filter((coding) => weightOf(coding) > 0);
  return accepted.toSorted((one, other) => weightOf(other) - weightOf(one))[0] ?? "identity";
}

/** Returns the weights in a header such as Accept, 0 to 1, by lower-case name; 0 where one is malformed (RFC 9110 §12.4.2). */
function parseWeights(header: string): ReadonlyMap<string, number> {
  const weights = new Map<string, number>();
  for (const entry of header.split(",")) {
    const [name = "", ...parameters] = entry.split(";").map((part) => part.trim().toLowerCase());
    const weight = parameters.find((parameter) => parameter.startsWith("q="));
    if (!weights.has(name)) weights.set(name, weight === undefined ? 1 : parseWeight(weight.slice(2)));
  }
  return weights;
}

const parseWeight = (text: string): number =>
  /^(0(\.\d{0,3})?|1(\.0{0,3})?)$/.test(text) ? Number(text) : 0;

type Content = string | Buffer<ArrayBuffer>;

/** Encodes a content. Loads the library at its first use. */
async function encode(content: Content, coding: Coding): Promise<Content> {
  if (coding === "identity") return content;
  const { brotliCompress, gzip } = await import("node:zlib");
  return promisify(coding === "br" ? brotliCompress : gzip)(content);
}

/** Returns a function that encodes a content on the first use of a coding. */
function fromContent(content: Content): Coded {
  const blobs = new Map<Coding, () => Promise<Blob>>();
  return (coding) => {
    const blob = blobs.get(coding) ?? once(async () => new Blob([await encode(content, coding)]));
    blobs.set(coding, blob);
    return blob();
  };
}
