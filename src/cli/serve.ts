import { lookup } from "node:dns/promises";
import type { Logger } from "pino";
import { version } from "../../package.json" with { type: "json" };
import { type Listener, type ListenOptions, listen, listenTls } from "../http/listen.ts";
import { isLoopback } from "../http/loopback.ts";
import type { Metrics } from "../http/metrics.ts";
import { createService, type Service } from "../http/service.ts";
import { openStore } from "../storage/open.ts";
import type { Store } from "../storage/store.ts";
import type { TodoStore } from "../todo.ts";
import { readCertificate, watchCertificate } from "./certificate.ts";
import { type Config, clusterVariables, type Environment, UsageError } from "./config.ts";
import { type Credentials, openCredentials } from "./credentials.ts";
import { openLog, type ProcessLog } from "./log.ts";

const STOP_WITHIN_MS = 10_000;
/** Ctrl-C reaches a server under npm twice: from the terminal, and again from npm. */
const SAME_SIGNAL_MS = 250;

/** Runs the server until a signal ends it; throws a UsageError before anything listens. */
export async function serve(config: Config, env: Environment): Promise<void> {
  const { log, flush } = await openLog(config.logLevel);
  for (const name of clusterVariables(env)) log.warn({ name }, "variable ignored: a cluster put it there");
  const metrics = await openConfiguredMetrics(config);
  const store = await openConfiguredStore(config, metrics);
  const credentials = await openCredentials(config, store.keys, log);
  const { lookupClient, checkUser } = credentials;
  const onLoopback = isLoopback(await addressOf(config.host));
  const service = createService({
    store,
    realm: config.realm,
    allowBasicOverHttp: config.allowBasicOverHttp,
    basicFailures: config.basicFailures,
    onLoopback,
    trustedProxies: config.trustedProxies,
    allowedHosts: config.allowedHosts,
    corsOrigins: config.corsOrigins,
    accessLog: config.accessLog,
    maxRequests: config.maxRequests,
    maxSubscribers: config.maxSubscribers,
    log,
    keys: store.keys,
    lookupClient,
    ...(checkUser !== undefined && { checkUser }),
    ...(metrics !== undefined && { observer: metrics.observer }),
  });
  const exporter = metrics && (await exportMetrics(metrics, store, config, log));
  const listener = serveAt(service, config, log);
  stopOnSignal(listener, config.stopDelay * 1000, store, log, flush);
  const metricsUrl = exporter && `${exporter.url}/metrics`;
  log.info({ version, url: listener.url, store: config.store.split(":")[0], metricsUrl }, "listening");
  warnOfSurfaces(credentials, config, onLoopback, log);
  if (credentials.demo !== undefined) showDemo(credentials.demo, listener.url);
}

/** Loads what counts only where it is wanted. */
async function openConfiguredMetrics({ metricsPort }: Config): Promise<Metrics | undefined> {
  if (metricsPort === undefined) return undefined;
  const { openMetrics } = await import("../http/metrics.ts");
  return openMetrics({ version, runtime: `bun ${process.versions.bun}` });
}

async function exportMetrics(
  metrics: Metrics,
  store: Store,
  { metricsHost: host, metricsPort: port = 0, maxTodos }: Config,
  log: Logger,
): Promise<Listener> {
  metrics.holds(() => store.count, maxTodos);
  const onLoopback = isLoopback(await addressOf(host));
  const service = metrics.service({ onLoopback, log });
  return listening(() => listen(service, { host, port }), { host, port }, "--metrics-port");
}

async function openConfiguredStore(config: Config, metrics: Metrics | undefined): Promise<Store> {
  const { store, maxTodos, maxEvents, storeConnections: connections } = config;
  const onBatch = metrics && { onBatch: metrics.onBatch };
  try {
    return await openStore(store, { maxTodos, maxEvents, connections, ...onBatch });
  } catch (error) {
    throw new UsageError(`TODO_STORE: ${error instanceof Error ? error.message : error}`);
  }
}

async function addressOf(host: string): Promise<string> {
  try {
    return (await lookup(host.replace(/^\[(.*)\]$/, "$1"))).address;
  } catch {
    throw new UsageError(
      `the host ${host} does not resolve: use 127.0.0.1, 0.0.0.0 or a name of this machine`,
    );
  }
}

function serveAt(service: Service, { host, port, tls }: Config, log: Logger): Listener {
  if (tls === undefined) return listening(() => listen(service, { host, port }), { host, port }, "--port");
  const certificate = readCertificate(tls);
  const listener = listening(() => listenTls(service, certificate, { host, port }), { host, port }, "--port");
  watchCertificate(tls, certificate, listener, log);
  return listener;
}

/** What listens at an address; a UsageError says in plain words why it cannot. */
function listening<T extends Listener>(start: () => T, { host, port }: ListenOptions, flag: string): T {
  try {
    return start();
  } catch (error) {
    const code = error instanceof Error && "code" in error ? error.code : undefined;
    if (code === "EADDRINUSE") {
      throw new UsageError(
        `port ${port} on ${host} is taken: stop what is there, or choose another with ${flag}`,
      );
    }
    if (code === "EACCES")
      throw new UsageError(`port ${port} may not be taken by this user: choose one above 1023`);
    if (code === "EADDRNOTAVAIL") throw new UsageError(`${host} is no address of this machine`);
    throw new UsageError(
      `cannot listen on ${host}, port ${port}: ${error instanceof Error ? error.message : error}`,
    );
  }
}

/** The first SIGTERM or SIGINT answers what was accepted, then ends; the next one ends at once. */
function stopOnSignal(
  listener: Listener,
  delayMs: number,
  store: TodoStore,
  log: Logger,
  flush: ProcessLog["flush"],
): void {
  let first: { readonly signal: NodeJS.Signals; readonly at: number } | undefined;
  const exit = async (code: number): Promise<never> => {
    await flush();
    process.exit(code);
  };
  const onSignal = async (signal: NodeJS.Signals): Promise<void> => {
    if (first !== undefined) {
      if (signal === first.signal && performance.now() - first.at < SAME_SIGNAL_MS) return;
      log.warn({ signal }, "stopping at once");
      return exit(1);
    }
    first = { signal, at: performance.now() };
    log.info({ signal }, "stopping");
    setTimeout(() => {
      log.error({ seconds: STOP_WITHIN_MS / 1000 }, "the store did not close in time: stopping all the same");
      exit(1);
    }, delayMs + STOP_WITHIN_MS).unref();
    const cutOff = await listener.stop(delayMs);
    if (cutOff > 0) log.warn({ requests: cutOff }, "requests did not end in time: cut off");
    await store.close();
    log.info({}, "stopped");
    await exit(0);
  };
  process.on("SIGTERM", onSignal);
  process.on("SIGINT", onSignal);
}

function warnOfSurfaces(
  { hasClients, checkUser }: Credentials,
  config: Config,
  onLoopback: boolean,
  log: Logger,
) {
  if (!hasClients) log.warn({}, "no client is configured: /api/whoami answers 401 to all");
  if (checkUser === undefined) log.warn({}, "no user is configured: /admin/ answers 401 to all");
  if (config.allowBasicOverHttp) log.warn({}, "passwords are taken in clear (TODO_ALLOW_BASIC_OVER_HTTP)");
  else if (!onLoopback && config.tls === undefined && config.trustedProxies.length === 0)
    log.warn({}, "/admin/ answers only to this machine itself, for passwords would travel in clear");
}

/** Shows the demo credentials, once, past the log: on standard error, ready to be pasted. */
function showDemo({ token, user, password }: NonNullable<Credentials["demo"]>, url: string): void {
  process.stderr.write(`
No credentials are configured, so these were made for this start only:

demo-token=${token}
demo-password=${password}

curl -H 'Authorization: Bearer ${token}' '${url}/api/whoami'
curl -u '${user}:${password}' '${url}/admin/'

`);
}
