import { constants } from "node:crypto";
import { setTimeout as sleep, setImmediate as turn } from "node:timers/promises";
import { IDLE_SECONDS, MAX_REQUEST_BYTES } from "../limits.ts";
import { forbidReuse } from "../response.ts";
import type { Handler } from "../route.ts";
import type { Service } from "../service.ts";
import type { Certificate } from "./tls.ts";

/** Where to listen. */
export interface ListenOptions {
  /** A host name or an IP address. */
  readonly host: string;
  /** A port; 0 selects a free one. */
  readonly port: number;
}

/** A running server. */
export interface Listener {
  /** The server's origin, such as `http://127.0.0.1:8080`. */
  readonly url: string;
  /**
   * Shuts down. The service reports not ready and each response carries `Connection: close` (RFC 9112 §9.6), while the
   * listener stays open for `delayMs` milliseconds (300 at least). Then it closes and answers the accepted requests.
   * Resolves with the number of requests it aborted after 8 seconds. A connection that arrives while the listener
   * closes can be reset.
   */
  readonly stop: (delayMs?: number) => Promise<number>;
  /** Closes the listener and all connections immediately. */
  readonly abort: () => Promise<void>;
}

export interface TlsListenOptions extends ListenOptions {
  /** Milliseconds for which the old certificate is still served after a renewal; 15,000 by default. */
  readonly retireMs?: number;
}

/** A running server with TLS. */
export interface TlsListener extends Listener {
  /**
   * Serves new connections with this certificate, and rejects with the system's error if that fails. For `retireMs`, some
   * connections still receive the old certificate; they close between two requests.
   */
  readonly renew: (certificate: Certificate) => Promise<void>;
}

type Closable = Pick<Bun.Server<undefined>, "pendingRequests" | "stop">;

/** Makes browsers use HTTPS for a year (RFC 6797 §6.1). */
const HSTS = "max-age=31536000";
/** The TLS 1.2 ciphers with forward secrecy and authenticated encryption (RFC 9325 §4.2). TLS 1.3 has no others. */
const CIPHERS = [
  "ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-RSA-AES128-GCM-SHA256",
  "ECDHE-ECDSA-AES256-GCM-SHA384:ECDHE-RSA-AES256-GCM-SHA384",
  "ECDHE-ECDSA-CHACHA20-POLY1305:ECDHE-RSA-CHACHA20-POLY1305",
].join(":");
/** Longer than the idle timeout, so that every active connection receives `Connection: close`. */
const RETIRE_MS = 15_000;

/** Gives a client that reuses its connection the time to send one more request and to read `Connection: close`. */
const MIN_DRAIN_MS = 300;

/** Accepted requests that take longer than this are aborted. */
const DRAIN_TIMEOUT_MS = 8000;
const POLL_INTERVAL_MS = 20;

const SERVER_OPTIONS = {
  maxRequestBodySize: MAX_REQUEST_BYTES,
  idleTimeout: IDLE_SECONDS,
  development: false,
};

/**
 * Serves a service over HTTP/1.1. Throws the system's error, such as `EADDRINUSE`, if it cannot listen.
 * @example
 * ```ts
 * import { createService } from "todo-service";
 * import { listen } from "todo-service/listen";
 * import { openMemory } from "todo-service/memory";
 *
 * const listener = listen(createService({ store: openMemory() }), { host: "127.0.0.1", port: 8080 });
 * process.once("SIGTERM", () => listener.stop());
 * ```
 */
export function listen(service: Service, { host, port }: ListenOptions): Listener {
  const server = Bun.serve({
    hostname: host,
    port,
    routes: service.routes,
    ...SERVER_OPTIONS,
    // Outside of development, Bun sets SO_REUSEPORT by default, and a second server could share the port.
    reusePort: false,
  });
  return {
    url: new URL(server.url).origin,
    stop: (delayMs = 0) => stopAll(service, () => [server], delayMs),
    abort: () => server.stop(true),
  };
}

/**
 * Serves a service over HTTP/2 and HTTP/1.1 with TLS. Throws the system's error, such as `EADDRINUSE`, if it cannot listen.
 * @example
 * ```ts
 * import { readFile } from "node:fs/promises";
 * import { createService } from "todo-service";
 * import { listenTls } from "todo-service/listen";
 * import { openMemory } from "todo-service/memory";
 * import { parseCertificate } from "todo-service/tls";
 *
 * const certificate = parseCertificate(await readFile("cert.pem", "utf8"), await readFile("key.pem", "utf8"));
 * const service = createService({ store: openMemory() });
 * const listener = listenTls(service, certificate, { host: "127.0.0.1", port: 8443 });
 * console.log(`Listening on ${listener.url}`);
 * ```
 */
export function listenTls(
  service: Service,
  certificate: Certificate,
  { host, port: requestedPort, retireMs = RETIRE_MS }: TlsListenOptions,
): TlsListener {
  const routes = withHeaders(service.routes, (headers) => headers.set("Strict-Transport-Security", HSTS));
  const lastRoutes = withHeaders(routes, forbidReuse);
  // Old and new certificate need two servers on one port (SO_REUSEPORT), so first check that no other process uses it.
  const exclusive = listen(service, { host, port: requestedPort });
  const port = Number(new URL(exclusive.url).port);
  exclusive.abort();
  const serve = ({ cert, key }: Certificate) =>
    Bun.serve({
      hostname: host,
      port,
      routes,
      ...SERVER_OPTIONS,
      reusePort: true,
      http2: true,
      tls: { cert, key, ciphers: CIPHERS, secureOptions: constants.SSL_OP_CIPHER_SERVER_PREFERENCE },
    });

  let current = serve(certificate);
  const retiring = new Set<typeof current>();
  const all = () => [current, ...retiring];
  let stopped = false;

  async function stopLater(server: typeof current): Promise<void> {
    retiring.add(server);
    // An immediate stop would close connections on which a request is arriving.
    await sleep(retireMs, undefined, { ref: false });
    // Resolves when the last response has been sent.
    await server.stop();
    retiring.delete(server);
  }

  return {
    url: new URL(current.url).origin,
    renew: async (next) => {
      if (stopped) return;
      const before = current;
      current = serve(next);
      stopLater(before);
      before.reload({ routes: lastRoutes });
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

/** Returns the routes with a function that changes the headers of each response. */
function withHeaders(
  routes: Readonly<Record<string, Handler>>,
  change: (headers: Headers) => void,
): Record<string, Handler> {
  const changed = (response: Response): Response => {
    change(response.headers);
    return response;
  };
  const wrap =
    (handler: Handler): Handler =>
    (request, server) => {
      const response = handler(request, server);
      // Not chain(), which is slower here.
      return response instanceof Promise ? response.then(changed) : changed(response);
    };
  return Object.fromEntries(Object.entries(routes).map(([path, handler]) => [path, wrap(handler)]));
}

/** Drains a service, then shuts down its servers. Resolves with the number of aborted requests. */
async function stopAll(
  service: Service,
  servers: () => readonly Closable[],
  delayMs: number,
): Promise<number> {
  service.drain();
  await sleep(Math.max(delayMs, MIN_DRAIN_MS));
  service.close();
  const aborted = await Promise.all(servers().map(shutdown));
  return aborted.reduce((sum, requests) => sum + requests, 0);
}

/**
 * Closes the listener of a server, answers the requests that it accepted, and closes their connections.
 * Aborts requests that are still pending after 8 seconds, and resolves with their number.
 */
async function shutdown(server: Closable): Promise<number> {
  // A request that has arrived but was not read yet would be lost, because its connection still counts as idle.
  for (let turns = 0; turns < 3; turns++) await turn();
  const stopped = server.stop().then(() => true);
  const deadline = performance.now() + DRAIN_TIMEOUT_MS;
  // Without a pending request, the remaining connections have sent nothing or half a head.
  while (server.pendingRequests > 0 && performance.now() < deadline) {
    if (await Promise.race([stopped, sleep(POLL_INTERVAL_MS, false)])) return 0;
  }
  const aborted = server.pendingRequests;
  await server.stop(true);
  return aborted;
}
