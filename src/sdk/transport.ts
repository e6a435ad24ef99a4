import {
  basicAuthorization,
  buildHeaders,
  type Call,
  type Exchange,
  interpret,
  openExchange,
  type Read,
  readText,
  throwProblem,
} from "./exchange.ts";
import { delay, isTransient, RETRY_MAX_MS, retryDelay } from "./retry.ts";
import type { CallOptions, TodoApiOptions } from "./types.ts";

export type Transport = ReturnType<typeof createTransport>;

/** Returns the functions that send the requests of one client. Throws a TypeError if one of its options is invalid. */
export function createTransport({
  baseUrl = defaultBaseUrl(),
  token,
  admin,
  fetch: ownFetch,
  timeoutMs = 10_000,
  retries = 4,
}: TodoApiOptions) {
  if (!isHttpUrl(baseUrl)) {
    const withScheme = `http://${baseUrl.replace(/^(\w+:)?\/\//, "")}`;
    throw new TypeError(`baseUrl: "${baseUrl}" is not an HTTP URL: write it as "${withScheme}"`);
  }
  // A browser's own fetch must not be called as a method of another object.
  const fetch = ownFetch ?? ((url: string, init: RequestInit) => globalThis.fetch(url, init));
  const root = baseUrl.replace(/\/+$/, "");
  const basic = admin && basicAuthorization(admin);
  const authorize = async (path: string): Promise<string | undefined> => {
    if (path.startsWith("/admin/")) return basic;
    const current = typeof token === "function" ? await token() : token;
    return current === undefined ? undefined : `Bearer ${current}`;
  };

  /** Sends one request. */
  const send = async (call: Call, options: CallOptions): Promise<Exchange> => {
    // Not spread, because the options can be an AbortController, whose signal is a getter.
    const { signal, headers: given } = options;
    const { method, path, body } = call;
    const headers = buildHeaders(call, await authorize(path), given);
    // A redirect to another origin would get the title.
    const init = { method, headers, redirect: "manual", signal, body: JSON.stringify(body) } as const;
    return openExchange(fetch, root + path, init, options.timeoutMs ?? timeoutMs);
  };

  /** Sends a request, with retries, and returns what `read` makes of the response. */
  const request = async <T>(call: Call, options: CallOptions = {}, read: Read<T>): Promise<T> => {
    // Without an Idempotency-Key, the service would execute a repeated POST twice.
    const isRepeatable = call.method !== "POST" || call.idempotencyKey !== undefined;
    const maxRetries = isRepeatable ? (options.retries ?? retries) : 0;
    for (let attempt = 0; ; attempt++) {
      let exchange: Exchange | undefined;
      try {
        exchange = await send(call, options);
        const { response } = exchange;
        const text = await readText(exchange);
        // An earlier attempt may have deleted it.
        const isDeleted =
          attempt > 0 && call.method === "DELETE" && /"code":\s*"(todo|key)_not_found"/.test(text);
        if (!response.ok && !isDeleted) throwProblem(response, text);
        return interpret(response, () => read(response, text));
      } catch (error) {
        if (attempt >= maxRetries || !isTransient(error)) throw error;
        const ms = retryDelay(attempt, error);
        if (ms > RETRY_MAX_MS) throw error;
        await delay(ms, options.signal);
      } finally {
        exchange?.close();
      }
    }
  };

  /** Whether a session can be kept. The `fetch` of Node, Bun and Deno drops cookies. */
  const keepsCookies = ownFetch !== undefined || process?.versions?.node === undefined;

  return { send, request, keepsCookies };
}

const { location, process } = globalThis as {
  location?: { origin?: string; href?: string };
  process?: { versions?: { node?: string } };
};

/** Returns the page's own origin, or the default address of `npm start`. */
const defaultBaseUrl = (): string =>
  location?.origin?.startsWith("http") ? location.origin : "http://127.0.0.1:3000";

function isHttpUrl(text: string): boolean {
  try {
    return /^https?:/.test(new URL(text, location?.href).protocol);
  } catch {
    return false;
  }
}
