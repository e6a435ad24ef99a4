import type { Service } from "./service.ts";

export interface ListenOptions {
  /** A name or an address. */
  readonly host: string;
  /** 0 takes a free one. */
  readonly port: number;
}

/** A service that is being served. */
export interface Listener {
  readonly url: string;
  /** Takes no more connections, answers what was accepted, then resolves. */
  readonly stop: () => Promise<void>;
  /** Closes everything at once. */
  readonly abort: () => Promise<void>;
}

/** Past this, Bun refuses a body by itself with an empty 413, before any route sees it. */
const MAX_REQUEST_BYTES = 1024 * 1024;

/** Serves over HTTP/1.1; throws what the system says when the address cannot be taken. */
export function listen(service: Service, { host, port }: ListenOptions): Listener {
  const server = Bun.serve({
    hostname: host,
    port,
    routes: service.routes,
    maxRequestBodySize: MAX_REQUEST_BYTES,
    development: false,
    // Bun sets SO_REUSEPORT by itself outside of development: a second server would share the port.
    reusePort: false,
  });
  return {
    url: new URL(server.url).origin,
    stop: async () => {
      service.drain();
      await server.stop();
    },
    abort: () => server.stop(true),
  };
}
