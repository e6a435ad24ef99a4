import { existsSync, readFileSync } from "node:fs";
import { version } from "../../package.json" with { type: "json" };
import { describeListenError, localUrl, resolveAddress } from "../config/address.ts";
import type { Config } from "../config/config.ts";
import type { Sourced } from "../config/setting-values.ts";
import { CommandError, toStoreError, UsageError } from "../config/usage-error.ts";
import { type Listener, type ListenOptions, listen, listenTls } from "../http/listener/listen.ts";
import type { Log } from "../http/observability/log.ts";
import type { Metrics } from "../http/observability/metrics.ts";
import { isLoopback } from "../http/policy/address.ts";
import { createService, type Service } from "../http/service.ts";
import type { OnProgress } from "../storage/maintenance.ts";
import { openStore } from "../storage/open.ts";
import type { Store } from "../storage/store.ts";
import { openCredentials } from "./credentials.ts";
import { logKeyChanges } from "./key-log.ts";
import { openLog, type ProcessLog } from "./log.ts";
import {
  confirmFirstKey,
  describeAddresses,
  describeDemo,
  describeMemory,
  listWarnings,
  showFirstKey,
  whereToOpen,
} from "./start-message.ts";

const SHUTDOWN_TIMEOUT_MS = 10_000;
/** How long the last lines wait for a slow reader of the log. */
const FLUSH_TIMEOUT_MS = 1000;
/** With npm, one Ctrl-C arrives twice: from the terminal and, later on a busy machine, from npm. */
const SAME_SIGNAL_MS = 500;

/** What the parts of a server need at its start. */
interface Start {
  readonly config: Config;
  readonly log: Log;
  readonly metrics: Metrics | undefined;
  /** Called with how much of the store is loaded. */
  readonly onProgress: OnProgress;
}

/**
 * Runs the server until a signal shuts it down. Throws a UsageError if a setting cannot be used.
 * @param onProgress called with how much of the store is loaded
 */
export async function serve(config: Config, onProgress: OnProgress): Promise<void> {
  const processLog = openLog(config.log.level);
  const { log } = processLog;
  // Modules and libraries are loaded only if a setting needs them.
  const backups = config.backups.folder && (await import("./backups.ts"));
  const schedule = backups?.readSchedule(config);
  const { host } = config.address;
  const onLoopback = isLoopback(await resolveAddress(host));
  const simulation = config.simulation.faults;
  if (simulation !== undefined && !onLoopback)
    throw new UsageError(`--simulate works on loopback only, and --host is ${host}: leave one out`);
  const { port } = config.metrics;
  const build = { version, runtime: `bun ${process.versions.bun}` };
  const metrics = port && new (await import("../http/observability/metrics.ts")).Metrics(build);
  const start: Start = { config, log, metrics, onProgress };
  const store = await openSeededStore(start);
  if (metrics !== undefined)
    (await import("./store-metrics.ts")).registerStoreMetrics(metrics, store, config.store.maxTodos);
  const credentials = await openCredentials(config, store.keys, log);
  if (credentials.needsFirstKey) confirmFirstKey(config);
  const service = createService({
    store,
    credentials: credentials.accepted,
    access: config.access,
    network: { ...config.network, onLoopback, ownHost: getOwnHost(config) },
    limits: config.limits,
    log,
    accessLog: config.log.requests,
    simulation,
    observer: metrics?.observe(store),
    mcp: config.assistants.mcp ? (await import("../mcp/http.ts")).createMcpEndpoint({ version }) : undefined,
  });
  // First, because a server that cannot start must not acknowledge a write.
  const metricsListener = metrics && port && (await serveMetrics(metrics, port, start));
  const listener = await serveAt(service, start);
  shutdownOnSignal(listener, config.shutdown.delay * 1000, store, processLog);
  if (schedule !== undefined && store.id !== undefined)
    backups?.scheduleBackups(schedule, store.id, log, metrics);
  const metricsUrl = metricsListener && `${metricsListener.url}/metrics`;
  logKeyChanges(store.keys, log);
  const kind = config.store.url.value.split(":")[0];
  log.info({ version, pid: process.pid, url: listener.url, store: kind, metricsUrl }, "listening");
  if (simulation !== undefined)
    log.warn({ ...simulation }, "SIMULATION: requests below /api are delayed and fail on purpose");
  for (const warning of listWarnings(credentials, config, onLoopback)) log.warn({}, warning);
  const { hasUsers, demo } = credentials;
  const subject = { access: config.access, hasUsers, demo, onLoopback };
  // On standard error, because secrets do not belong in the log.
  const { stderr } = process;
  if (stderr.isTTY && !credentials.needsFirstKey)
    stderr.write(`\n${describeAddresses(listener.url, subject)}`);
  if (demo !== undefined) stderr.write(describeDemo(demo, listener.url));
  // After the start, so that a port in use does not lose the token.
  if (credentials.needsFirstKey) await showFirstKey(store.keys, whereToOpen(listener.url, subject));
  if (stderr.isTTY) stderr.write(describeMemory(config.store.url.value));
}

async function serveMetrics(metrics: Metrics, port: Sourced<number>, { config, log }: Start) {
  const { host } = config.metrics;
  const onLoopback = isLoopback(await resolveAddress(host));
  const { createMetricsService } = await import("../http/listener/metrics.ts");
  const service = createMetricsService(metrics, onLoopback, log);
  return listening((address) => listen(service, address), { host, port });
}

/** Opens the store, and fills it from the file of --seed if it has never held a to-do. */
async function openSeededStore(start: Start): Promise<Store> {
  const { config, log, onProgress } = start;
  const open = () => openConfiguredStore(start);
  const opened = await open();
  if (config.store.seed === undefined) return opened;
  const { seedStore } = await import("./seed.ts");
  const { store, todos } = await seedStore(opened, config.store, open, onProgress);
  if (todos === undefined) log.info({}, "store not seeded: it has held to-dos before");
  else log.info({ todos }, "store seeded");
  return store;
}

async function openConfiguredStore({ config, log, metrics, onProgress }: Start): Promise<Store> {
  const { url, maxTodos, maxEvents, connections } = config.store;
  try {
    const onWarning = (reason: string) => log.warn({ reason }, "problem with the store");
    return await openStore(url.value, {
      maxTodos,
      maxEvents,
      connections,
      onWarning,
      onCreated: () => log.info({}, "the store did not exist, and was created"),
      onProgress,
      rescueFolder: config.backups.folder?.value,
      ...metrics?.storeCallbacks,
    });
  } catch (error) {
    throw toStoreError(url.source, error);
  }
}

/** Returns the host and port that the server listens on, as clients send them. */
export const getOwnHost = ({ address, tls }: Config): string => new URL(localUrl(address, tls)).host;

async function serveAt(service: Service, { config, log, metrics }: Start): Promise<Listener> {
  const { cert, key } = config.tls;
  if (cert === undefined || key === undefined)
    return listening((address) => listen(service, address), config.address);
  const { readCertificate, watchCertificate } = await import("./certificate.ts");
  const certificate = readCertificate({ cert, key });
  const listener = listening((address) => listenTls(service, certificate, address), config.address);
  watchCertificate({ cert, key }, certificate, listener, log, metrics);
  return listener;
}

/** Returns the started listener. Throws a CommandError that says in plain words why it cannot listen: that may change. */
function listening<T extends Listener>(
  start: (address: ListenOptions) => T,
  { host, port }: Config["address"],
): T {
  const address = { host, port: port.value };
  try {
    return start(address);
  } catch (error) {
    throw new CommandError(describeListenError(error, address, port.source));
  }
}

/** Shuts down on the first SIGTERM, SIGINT, SIGQUIT or SIGHUP; exits immediately on the next one. */
function shutdownOnSignal(
  listener: Listener,
  delayMs: number,
  store: Store,
  { log, flush }: ProcessLog,
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
  for (const signal of ["SIGTERM", "SIGINT", "SIGQUIT"] as const) process.on(signal, onSignal);
  if (hasDefaultHangup()) process.on("SIGHUP", onSignal);
}

/** Returns whether SIGHUP has its default action. `nohup` ignores it. Only Linux tells; elsewhere, the action stays as it is. */
function hasDefaultHangup(): boolean {
  const path = "/proc/self/status";
  if (!existsSync(path)) return false;
  const lastDigit = /^SigIgn:.*(.)$/m.exec(readFileSync(path, "utf8"))?.[1] ?? "";
  // SIGHUP is signal 1, so it is the lowest bit of the mask.
  return Number.parseInt(lastDigit, 16) % 2 === 0;
}
