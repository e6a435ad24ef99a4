import type { Service } from "../src/http/service.ts";

interface CallOptions {
  readonly method?: string;
  /** The client's IP address; 127.0.0.1 by default, and `undefined` for a closed connection. */
  readonly address?: string | undefined;
  readonly headers?: Readonly<Record<string, string>>;
  readonly params?: Readonly<Record<string, string>>;
  readonly body?: string;
  /** Called with the idle timeouts that the handler sets. */
  readonly onTimeout?: (seconds: number) => void;
}

/** Calls the handler of a route without a socket, so that a request can come from any address. */
export function callRoute({ routes }: Service, path: string, options: CallOptions = {}) {
  const { method = "GET", headers = {}, params = {}, body = null, onTimeout = () => {} } = options;
  const address = "address" in options ? options.address : "127.0.0.1";
  const handler = routes[path];
  if (handler === undefined) throw new Error(`there is no route ${path}`);
  const request = new Request(`http://localhost${path}`, { method, headers, body });
  return handler(Object.assign(request, { params }), {
    protocol: "http",
    requestIP: () => (address === undefined ? null : { address }),
    timeout: (_request, seconds) => onTimeout(seconds),
  });
}
