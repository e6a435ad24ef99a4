import { listen } from "../src/http/listener/listen.ts";
import { createService, type ServiceOptions } from "../src/http/service.ts";
import { openMemory } from "../src/storage/memory/store.ts";
import { validateResponse } from "./openapi.ts";

/** A service on a free loopback port. */
export interface TestService extends AsyncDisposable {
  readonly url: string;
  readonly port: number;
  /** The path patterns. */
  readonly paths: readonly string[];
  /** Sends a request over a real socket, and validates the response against openapi.json. */
  readonly send: (method: string, path: string, init?: RequestInit) => Promise<Response>;
  /** Ends event streams and writes the pending summaries of the log. */
  readonly close: () => void;
  /** Starts draining. */
  readonly drain: () => void;
  /** Sends a body as `application/json`. */
  readonly sendJson: (method: string, path: string, body: unknown, init?: RequestInit) => Promise<Response>;
}

/** Returns the path that a header such as `Location` names, relative to the address of its response. */
export const pathIn = (reference: string | null, { url }: Response): string | null =>
  reference && new URL(reference, url).href.slice(new URL(url).origin.length);

export function startService(options: Partial<ServiceOptions> = {}): TestService {
  const service = createService({ store: openMemory(), ...options });
  const listener = listen(service, { host: "127.0.0.1", port: 0 });

  const send: TestService["send"] = async (method, path, init = {}) => {
    const response = await fetch(listener.url + path, { redirect: "manual", ...init, method });
    await validateResponse(method, path, response);
    return response;
  };
  return {
    url: listener.url,
    port: Number(new URL(listener.url).port),
    paths: Object.keys(service.routes),
    send,
    close: service.close,
    drain: service.drain,
    sendJson: (method, path, body, init = {}) =>
      send(method, path, {
        ...init,
        headers: { "Content-Type": "application/json", ...init.headers },
        body: JSON.stringify(body),
      }),
    [Symbol.asyncDispose]: () => listener.abort(),
  };
}
