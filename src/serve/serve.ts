import { accessSync, constants, statSync } from "node:fs";
import { join } from "node:path";
import { version } from "../../package.json" with { type: "json" };
import { reachableHost, resolveAddress } from "../config/address.ts";
import type { Config } from "../config/config.ts";
import { clusterVariables, type Environment } from "../config/environment.ts";
import { CommandError, FAILED_EXIT_CODE, toStoreError, UsageError } from "../config/usage-error.ts";
import { describeFsError, errorMessage, getErrno } from "../error-message.ts";
import type { McpEndpoint } from "../http/handlers/mcp.ts";
import { type Listener, type ListenOptions, listen, listenTls } from "../http/listener/listen.ts";
import type { Metrics } from "../http/listener/metrics.ts";
import type { Log } from "../http/observability/log.ts";
import { isLoopback } from "../http/policy/address.ts";
import { createService, type Service } from "../http/service.ts";
import { openStore, parseFilePath } from "../storage/open.ts";
import { fileUsage } from "../storage/sqlite/files.ts";
import type { Store } from "../storage/store.ts";
import type { TodoStore } from "../todo.ts";
import { scheduleBackups } from "./backups.ts";
import { readCertificate, watchCertificate } from "./certificate.ts";
import { type Credentials, openCredentials } from "./credentials.ts";
import { showFirstKey, whereToOpen } from "./first-key.ts";
import { logKeyChanges } from "./key-log.ts";
import { openLog, type ProcessLog } from "./log.ts";
import { describeAddresses, describeDemo, describeMemory } from "./start-message.ts";

const SHUTDOWN_TIMEOUT_MS = 10_000;
/** How long the last lines wait for a slow reader of the log. */
const FLUSH_TIMEOUT_MS = 1000;
/** With npm, one Ctrl-C arrives twice: from the terminal and from npm. */
const SAME_SIGNAL_MS = 250;

/** Runs the server until a signal shuts it down. Throws a UsageError if a setting cannot be used. */
export async function serve(config: Config, env: Environment): Promise<void> {
  const { log, flush } = await openLog(config.logLevel);
  for (const name of clusterVariables(env))
    log.warn({ name }, "variable ignored: Kubernetes sets it for a service");
  const schedule = readSchedule(config);
  const metrics = await openConfiguredMetrics(config);
  const store = await openConfiguredStore(config, metrics, log);
  const credentials = await openCredentials(config, store.keys, log);
  const onLoopback = isLoopback(await resolveAddress(config.host));
  const service = createService({
    store,
    credentials: { ...credentials, keys: store.keys },
    access: config.access,
    network: { ...config.network, onLoopback, ownHost: getOwnHost(config) },
    limits: config.limits,
    log,
    accessLog: config.accessLog,
    observer: metrics?.observer,
    mcp: config.mcp ? await loadMcpEndpoint() : undefined,
  });
  const metricsListener = metrics && (await exportMetrics(metrics, store, config, log));
  const listener = serveAt(service, config, metrics, log);
  shutdownOnSignal(listener, config.stopDelay * 1000, store, log, flush);
  if (schedule !== undefined && store.id !== undefined) {
    const backups = scheduleBackups(schedule.path, store.id, schedule, log);
    const disk = () => fileUsage(join(schedule.folder, "todos.db"));
    metrics?.trackBackups({ ...backups, disk, intervalMs: schedule.everyMs });
  }
  const metricsUrl = metricsListener && `${metricsListener.url}/metrics`;
  logKeyChanges(store.keys, log);
  log.info({ version, url: listener.url, store: config.store.value.split(":")[0], metricsUrl }, "listening");
  warnOfSurfaces(credentials, config, onLoopback, log);
  if (credentials.demo !== undefined && /^postgres/.test(config.store.value))
    log.warn(
      {},
      "each replica generates its own credentials, and rejects those of the others: create an API key with todo keys create, or set TODO_CLIENTS_FILE and TODO_USERS_FILE",
    );
  const subject = { ...config, ...credentials, store: config.store.value, onLoopback };
  // On standard error, because secrets do not belong in the log.
  const { stderr } = process;
  if (stderr.isTTY && !credentials.needsFirstKey)
    stderr.write(`\n${describeAddresses(listener.url, subject)}`);
  if (credentials.demo !== undefined) stderr.write(describeDemo(credentials.demo, listener.url));
  // After the start, so that a port in use does not lose the token.
  if (credentials.needsFirstKey) await showFirstKey(store.keys, whereToOpen(listener.url, subject));
  if (stderr.isTTY) stderr.write(describeMemory(subject.store));
}

/**
 * Returns when and where to back up the store, if that is configured. Throws a UsageError if it is impossible. The exit code
 * is 1 if the folder cannot be used now, because its disk may be mounted later.
 */
export function readSchedule({ store, backupDir, backupEvery: everyMs, backupKeep: keep }: Config) {
  if (backupDir === undefined) return undefined;
  const { value: folder, source } = backupDir;
  const path = getSqlitePath(store);
  if (path === undefined) {
    const next =
      store.value === "memory:"
        ? `set ${store.source} to sqlite:PATH`
        : "back up PostgreSQL with its own tools, such as pg_dump";
    throw new UsageError(`${source} needs a sqlite: store: ${next}`);
  }
  try {
    if (!statSync(folder).isDirectory())
      throw new UsageError(`${source} "${folder}": it is not a folder: name an existing folder`);
    accessSync(folder, constants.R_OK | constants.W_OK | constants.X_OK);
  } catch (error) {
    if (error instanceof UsageError) throw error;
    throw new CommandError(`${source} "${folder}": ${describeFsError(error)}`, FAILED_EXIT_CODE, {
      cause: error,
    });
  }
  return { path, folder, everyMs, keep };
}

function getSqlitePath({ value, source }: Config["store"]): string | undefined {
  try {
    return parseFilePath(value);
  } catch (error) {
    throw toStoreError(source, error);
  }
}

/** Loads the metrics library only if metrics are configured. */
async function openConfiguredMetrics({ metricsPort }: Config): Promise<Metrics | undefined> {
  if (metricsPort === undefined) return undefined;
  const { openMetrics } = await import("../http/listener/metrics.ts");
  return openMetrics({ version, runtime: `bun ${process.versions.bun}` });
}

/** Loads the Model Context Protocol only if it is on. */
async function loadMcpEndpoint(): Promise<McpEndpoint> {
  const { createMcpEndpoint } = await import("../mcp/http.ts");
  return createMcpEndpoint({ version });
}

async function exportMetrics(
  metrics: Metrics,
  store: Store,
  { metricsHost: host, metricsPort: port = 0, metricsPortSource, maxTodos, store: configured }: Config,
  log: Log,
): Promise<Listener> {
  metrics.trackStore(store, maxTodos);
  if (store.pool !== undefined) metrics.trackPool(store.pool);
  const path = parseFilePath(configured.value);
  if (path !== undefined) metrics.trackFiles(() => fileUsage(path));
  const onLoopback = isLoopback(await resolveAddress(host));
  const service = metrics.service({ onLoopback, log });
  return listening(() => listen(service, { host, port }), { host, port }, metricsPortSource);
}

async function openConfiguredStore(config: Config, metrics: Metrics | undefined, log: Log): Promise<Store> {
  const { store, maxTodos, maxEvents, storeConnections: connections } = config;
  const callbacks = metrics && {
    onBatch: metrics.onBatch,
    onIdempotencyKeysEvicted: metrics.onIdempotencyKeysEvicted,
  };
  try {
    const onWarning = (reason: string) => log.warn({ reason }, "problem with the store");
    return await openStore(store.value, {
      maxTodos,
      maxEvents,
      connections,
      onWarning,
      rescueFolder: config.backupDir?.value,
      ...callbacks,
    });
  } catch (error) {
    throw toStoreError(store.source, error);
  }
}

/** Returns the host and port that the server listens on, as clients send them. */
export const getOwnHost = ({ host, port, tls }: Pick<Config, "host" | "port" | "tls">): string =>
  new URL(`${tls === undefined ? "http" : "https"}://${reachableHost(host)}:${port}`).host;

function serveAt(
  service: Service,
  { host, port, portSource, tls }: Config,
  metrics: Metrics | undefined,
  log: Log,
): Listener {
  const address = { host, port };
  if (tls === undefined) return listening(() => listen(service, address), address, portSource);
  const certificate = readCertificate(tls);
  const listener = listening(() => listenTls(service, certificate, address), address, portSource);
  const { current, isRejected } = watchCertificate(tls, certificate, listener, log);
  metrics?.trackCertificate({ expiry: () => current().notAfter, isRejected });
  return listener;
}

/** Returns the started listener. Throws a UsageError that says in plain words why it cannot listen. */
function listening<T extends Listener>(start: () => T, { host, port }: ListenOptions, source: string): T {
  try {
    return start();
  } catch (error) {
    throw new UsageError(describeListenError(error, { host, port }, source));
  }
}

/** Returns in plain words why a server cannot listen. */
export function describeListenError(error: unknown, { host, port }: ListenOptions, source: string): string {
  switch (getErrno(error)) {
    case "EADDRINUSE":
      return `port ${port} on ${host} is in use: stop the other program, or choose another port with ${source}`;
    case "EACCES":
      return `this user may not use port ${port}: choose a port above 1023 with ${source}`;
    case "EADDRNOTAVAIL":
      return `${host} is not an address of this machine`;
    default:
      return `cannot listen on ${host}, port ${port}: ${errorMessage(error)}`;
  }
}

/** Shuts down on the first SIGTERM or SIGINT; exits immediately on the next one. */
function shutdownOnSignal(
  listener: Listener,
  delayMs: number,
  store: TodoStore,
  log: Log,
  flush: ProcessLog["flush"],
): void {
  let first: { readonly signal: NodeJS.Signals; readonly at: number } | undefined;
  const exit = async (code: number): Promise<never> => {
    setTimeout(() => process.exit(code), FLUSH_TIMEOUT_MS);
    await flush();
    process.exit(code);
  };
  const onSignal = async (signal: NodeJS.Signals): Promise<void> => {
    if (first !== undefined) {
      if (signal === first.signal && performance.now() - first.at < SAME_SIGNAL_MS) return;
      log.warn({ signal }, "exiting immediately");
      return exit(1);
    }
    first = { signal, at: performance.now() };
    log.info({ signal }, "stopping");
    setTimeout(() => {
      log.error({ seconds: SHUTDOWN_TIMEOUT_MS / 1000 }, "the shutdown did not finish in time");
      exit(1);
    }, delayMs + SHUTDOWN_TIMEOUT_MS).unref();
    const aborted = await listener.stop(delayMs);
    if (aborted > 0) log.warn({ requests: aborted }, "requests did not finish in time and were aborted");
    try {
      await store.close();
    } catch (error) {
      log.error({ err: error }, "failed to close the store");
      return exit(1);
    }
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
  log: Log,
) {
  if (!hasClients) log.warn({}, "no client is configured: /api/whoami rejects every request");
  if (checkUser === undefined)
    log.warn({}, "no user is configured: /admin/ rejects every request until you run todo users add");
  const risk = describeRisk(config, onLoopback);
  if (risk !== undefined) log.warn({}, risk);
}

/** Returns what valid settings put at risk, or whom they shut out; `undefined` if that is nothing. */
export function describeRisk({ access, tls, network }: Config, onLoopback: boolean): string | undefined {
  if (access.allowBasicOverHttp)
    return `${access.privateMode ? "passwords and tokens" : "passwords"} are accepted over plain HTTP (TODO_ALLOW_BASIC_OVER_HTTP), where others can read them`;
  if (onLoopback || tls !== undefined || network.trustedProxies.length > 0) return undefined;
  const [surface, secrets] = access.privateMode ? ["the service", "credentials"] : ["/admin/", "passwords"];
  return `${surface} accepts requests from this machine only, because ${secrets} would be sent over plain HTTP: set --tls-cert and --tls-key, or --trusted-proxy if a proxy is in front`;
}
