import { constants } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { shutAcceptQueue } from "./accept-queue.ts";
import { type Closable, close } from "./closing.ts";
import { withHeader } from "./route.ts";
import type { Service } from "./service.ts";
import type { Certificate } from "./tls.ts";

export interface ListenOptions {
  /** A name or an address. */
  readonly host: string;
  /** 0 takes a free one. */
  readonly port: number;
}

/** A service that is being served. */
export interface Listener {
  readonly url: string;
  /**
   * Takes no more connections, answers what was accepted, then resolves with how many requests it cut off because they
   * took too long. Before that it is not ready for so many milliseconds, but goes on serving: time for a balancer to
   * notice.
   */
  readonly stop: (delayMs?: number) => Promise<number>;
  /** Closes everything at once. */
  readonly abort: () => Promise<void>;
}

export interface TlsListenOptions extends ListenOptions {
  /** For so many milliseconds after a renewal some new connections get the certificate from before. */
  readonly retireMs?: number;
}

/** A service that is being served over TLS. */
export interface TlsListener extends Listener {
  /**
   * Gives new connections this certificate; throws at once what the system says when it cannot be. Connections that have
   * the one before end between two requests. Resolves when no new one can get that any more.
   */
  readonly renew: (certificate: Certificate) => Promise<void>;
}

/** Past this, Bun refuses a body by itself with an empty 413, before any route sees it. */
const MAX_REQUEST_BYTES = 1024 * 1024;
/** Browsers keep to HTTPS for a year (RFC 6797 §6.1). */
const HSTS = "max-age=31536000";
/** For TLS 1.2: forward secrecy and authenticated encryption alone (RFC 9325 §4.2); 1.3 has no others. */
const CIPHERS = [
  "ECDHE-ECDSA-AES128-GCM-SHA256",
  "ECDHE-RSA-AES128-GCM-SHA256",
  "ECDHE-ECDSA-AES256-GCM-SHA384",
  "ECDHE-RSA-AES256-GCM-SHA384",
  "ECDHE-ECDSA-CHACHA20-POLY1305",
  "ECDHE-RSA-CHACHA20-POLY1305",
].join(":");
/** Longer than a connection may be idle: within it, each that is in use is told to close. */
const RETIRE_MS = 15_000;

/**
 * Within this time, and the runtime's two more, a request's head and body must have come whole, however they drip, and
 * the next request on a kept-alive connection must have begun.
 */
const IDLE_SECONDS = 10;

/** Serves over HTTP/1.1; throws what the system says when the address cannot be taken. */
export function listen(service: Service, { host, port }: ListenOptions): Listener {
  const server = Bun.serve({
    hostname: host,
    port,
    routes: service.routes,
    maxRequestBodySize: MAX_REQUEST_BYTES,
    idleTimeout: IDLE_SECONDS,
    development: false,
    // Bun sets SO_REUSEPORT by itself outside of development: a second server would share the port.
    reusePort: false,
  });
  return {
    url: new URL(server.url).origin,
    stop: (delayMs = 0) => stopAll(service, () => [server], delayMs),
    abort: () => server.stop(true),
  };
}

/** Serves over HTTP/2 and HTTP/1.1 with TLS; throws what the system says when the address cannot be taken. */
export function listenTls(
  service: Service,
  certificate: Certificate,
  { host, port: asked, retireMs = RETIRE_MS }: TlsListenOptions,
): TlsListener {
  const routes = withHeader(service.routes, "Strict-Transport-Security", HSTS);
  const lastRoutes = withHeader(routes, "Connection", "close");
  // Two certificates are two servers on one port, and such do not notice a third: this asks first.
  const exclusive = listen(service, { host, port: asked });
  const port = Number(new URL(exclusive.url).port);
  exclusive.abort();
  const serve = ({ cert, key }: Certificate) =>
    Bun.serve({
      hostname: host,
      port,
      routes,
      maxRequestBodySize: MAX_REQUEST_BYTES,
      idleTimeout: IDLE_SECONDS,
      development: false,
      reusePort: true,
      http2: true,
      tls: { cert, key, ciphers: CIPHERS, secureOptions: constants.SSL_OP_CIPHER_SERVER_PREFERENCE },
    });

  let current = serve(certificate);
  const retiring = new Set<typeof current>();
  const all = () => [current, ...retiring];
  let stopped = false;

  async function retire(server: typeof current): Promise<void> {
    retiring.add(server);
    // Stopped at once, it would close connections on which a request is on its way.
    server.reload({ routes: lastRoutes });
    await sleep(retireMs, undefined, { ref: false });
    // Takes as long as the last answer that is being sent.
    server.stop().then(() => retiring.delete(server));
  }

  return {
    url: new URL(current.url).origin,
    renew: (next) => {
      if (stopped) return Promise.resolve();
      const before = current;
      current = serve(next);
      return retire(before);
    },
    stop: (delayMs = 0) => {
      stopped = true;
      return stopAll(service, all, delayMs);
    },
    abort: async () => {
      stopped = true;
      await Promise.all(all().map((server) => server.stop(true)));
    },
  };
}

/** Ends a service with the servers that it has by then, which share a port. */
async function stopAll(service: Service, servers: () => readonly Server[], delayMs: number): Promise<number> {
  service.retire();
  if (delayMs > 0) await sleep(delayMs);
  service.drain();
  const [{ port } = { port: undefined }] = servers();
  if (port !== undefined) shutAcceptQueue(port);
  const cutOff = await Promise.all(servers().map(close));
  return cutOff.reduce((sum, requests) => sum + requests, 0);
}

type Server = Closable & { readonly port: number | undefined };
