/** Prometheus metrics. Only a server with metrics imports this file, because prom-client is slow to load. */
import { Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from "prom-client";
import type { Awaitable } from "../../awaitable.ts";
import { DEFAULT_LIMITS } from "../limits.ts";
import { createMiddleware } from "../middleware.ts";
import {
  AUTHENTICATION_OUTCOMES,
  type Observer,
  STORE_OPERATIONS,
  type StoreOperation,
  SURFACES,
} from "../observability/instrumentation.ts";
import type { Log } from "../observability/log.ts";
import { LogLimiter } from "../observability/log-limiter.ts";
import { createConnectionInfoReader } from "../policy/connection.ts";
import { createOriginPolicy, DEFAULT_NETWORK } from "../policy/origin.ts";
import { respond } from "../response.ts";
import { notFoundRoute, publicRoute } from "../route.ts";
import type { Service } from "../service.ts";

/** What the metrics read of a store. */
export interface StoreSource {
  /** The number of to-dos. */
  readonly count: number;
  /** The number of changes that the slowest event stream has not read. */
  readonly eventLag: number;
  /** The file with everything that the server holds, while the files of the store are wrong. */
  readonly rescueFile?: string | undefined;
  /** Throws while the cause of the last failed write is still there. */
  checkWrites?(): Awaitable<void>;
}

/** Sizes in bytes; NaN if unknown. `freeBytes` is what the server's user can use. */
type DiskUsage = Readonly<Record<"freeBytes" | "totalBytes", number>>;
type FileUsage = DiskUsage & Readonly<Record<"databaseBytes" | "walBytes", number>>;

/** The operations whose failure means that the store is not writable. */
const WRITES: ReadonlySet<StoreOperation> = new Set(["insert", "set_done", "delete"]);

/** Most reads take less than the first bucket; few clients wait longer than the last one. */
const SECONDS = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10];
const BATCH_WRITES = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024];

/** Other methods share one label value, so that clients cannot create series. */
const METHODS: ReadonlySet<string> = new Set(["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]);
const OTHER_METHOD = "other";

/** The default metrics of prom-client that are correct on Bun. Those of heap spaces, handles and collections are not. */
const SUPPORTED_ON_BUN = /^(?:process_(?!heap)|nodejs_eventloop_lag_(?:(?:max|p50|p99)_)?seconds$)/;

export type Metrics = ReturnType<typeof openMetrics>;

/** Creates the metrics of a service and its runtime, with their versions, and starts to collect them. */
export function openMetrics({ version, runtime }: { readonly version: string; readonly runtime: string }) {
  const registry = new Registry();
  const registers = [registry];
  const gauge = (name: string, help: string, value: () => number): void => {
    new Gauge({
      name,
      help,
      registers,
      collect() {
        this.set(value());
      },
    });
  };

  new Gauge({
    name: "todo_build_info",
    help: "Always 1; the labels are the version of the service and its runtime.",
    labelNames: ["version", "runtime"],
    registers,
  }).set({ version, runtime }, 1);

  const requests = new Counter({
    name: "todo_http_requests_total",
    help: "HTTP requests by route pattern, method and status.",
    labelNames: ["route", "method", "status"],
    registers,
  });
  const requestSeconds = new Histogram({
    name: "todo_http_request_duration_seconds",
    help: "Seconds from a request's head to its response, without the time to send a long list or an event stream.",
    labelNames: ["route", "method"],
    buckets: SECONDS,
    registers,
  });
  let inFlight = 0;
  gauge("todo_http_requests_in_flight", "Requests that are waiting for their response.", () => inFlight);

  const authentications = new Counter({
    name: "todo_authentications_total",
    help: "Authentications at a guarded surface by outcome. A request that passed may still be rejected, for example by its scope.",
    labelNames: ["surface", "outcome"],
    registers,
  });
  for (const surface of SURFACES)
    for (const outcome of AUTHENTICATION_OUTCOMES) authentications.inc({ surface, outcome }, 0);

  const storeSeconds = new Histogram({
    name: "todo_store_operation_duration_seconds",
    help: "Seconds that a store operation took, except for results directly from memory.",
    labelNames: ["operation"],
    buckets: SECONDS,
    registers,
  });
  const storeFailures = new Counter({
    name: "todo_store_failures_total",
    help: "Failed store operations by reason: unavailable, full, or an error.",
    labelNames: ["operation", "reason"],
    registers,
  });
  // Without a first value of 0, rate() would not see the first failures.
  for (const operation of STORE_OPERATIONS)
    for (const reason of ["unavailable", "error"]) storeFailures.inc({ operation, reason }, 0);
  let writesFail = false;
  let isUnreachable = false;
  let tracked: StoreSource | undefined;
  let isChecking = false;
  const recheckWrites = async (): Promise<void> => {
    if (tracked?.checkWrites === undefined || isChecking) return;
    isChecking = true;
    try {
      await tracked.checkWrites();
      writesFail = false;
      isUnreachable = false;
    } catch {
      // The next scrape checks again.
      writesFail = true;
    }
    isChecking = false;
  };
  gauge("todo_store_writable", "0 while writes or the files of the store fail, otherwise 1.", () => {
    const isWritable = !writesFail && !isUnreachable;
    // In the background, because a scrape must not wait for a store that does not answer. It costs nothing while writes
    // succeed, and notices a failure without a write.
    recheckWrites();
    return isWritable ? 1 : 0;
  });
  const batchWrites = new Histogram({
    name: "todo_store_batch_writes",
    help: "Writes that shared a transaction, on SQLite and PostgreSQL.",
    buckets: BATCH_WRITES,
    registers,
  });
  const batchSeconds = new Histogram({
    name: "todo_store_batch_duration_seconds",
    help: "Seconds until such a transaction was on disk or the database had acknowledged it.",
    buckets: SECONDS,
    registers,
  });
  const evictedKeys = new Counter({
    name: "todo_idempotency_keys_evicted_total",
    help: "Idempotency keys that were dropped before their 24 hours were over, to make room for newer ones.",
    registers,
  });

  gauge("todo_js_heap_used_bytes", "JavaScript heap in use in bytes.", () => process.memoryUsage().heapUsed);
  collectDefaultMetrics({ register: registry });
  for (const { name } of registry.getMetricsAsArray()) {
    if (!name.startsWith("todo_") && !SUPPORTED_ON_BUN.test(name)) registry.removeSingleMetric(name);
  }

  const observer: Observer = {
    route: (route) => ({
      waiting: (change) => {
        inFlight += change;
      },
      answered: (name, status, ms) => {
        const method = METHODS.has(name) ? name : OTHER_METHOD;
        requests.inc({ route, method, status });
        requestSeconds.observe({ route, method }, ms / 1000);
      },
    }),
    store: (operation) => {
      const isWrite = WRITES.has(operation);
      return {
        answered: (ms) => {
          storeSeconds.observe({ operation }, ms / 1000);
          isUnreachable = false;
          if (isWrite) writesFail = false;
        },
        failed: (reason) => {
          storeFailures.inc({ operation, reason });
          if (reason === "unavailable") isUnreachable = true;
          if (isWrite && reason !== "full") writesFail = true;
        },
      };
    },
    surface: (surface) => (outcome) => authentications.inc({ surface, outcome }),
    subscribers: (count) => gauge("todo_event_subscribers", "Open event streams.", count),
  };
  return {
    /** Receives the measurements of a service. */
    observer,
    /** Records a committed batch of writes and the duration of its transaction in milliseconds. */
    onBatch: (writes: number, ms: number): void => {
      batchWrites.observe(writes);
      batchSeconds.observe(ms / 1000);
    },
    /** To be called with the number of idempotency keys that the store evicted before their 24 hours were over. */
    onIdempotencyKeysEvicted: (count: number): void => evictedKeys.inc(count),
    /** Adds metrics of the store. They are read at each scrape, as those of the next functions. */
    trackStore: (store: StoreSource, maxTodos: number): void => {
      tracked = store;
      const limit = "Maximum number of to-dos in the store; beyond it, inserts fail.";
      gauge("todo_store_todos", "To-dos in the store, as far as this process knows.", () => store.count);
      gauge("todo_store_todos_limit", limit, () => maxTodos);
      gauge(
        "todo_event_lag_events",
        "Changes that the slowest event stream has not read.",
        () => store.eventLag,
      );
      new Gauge({
        name: "todo_store_rescue_info",
        help: "1 with the rescue file as a label, while the files of the store are wrong and that file has everything.",
        labelNames: ["file"],
        registers,
        collect() {
          this.reset();
          if (store.rescueFile !== undefined) this.set({ file: store.rescueFile }, 1);
        },
      });
    },
    /** Adds metrics of the connections to a database. Its queries run or wait for a connection. */
    trackPool: (pool: Readonly<Record<"connections" | "queries", number>>): void => {
      const connections = "Maximum number of connections to the database.";
      gauge("todo_store_connections", connections, () => pool.connections);
      gauge("todo_store_queries", "Queries that run or wait for a connection.", () => pool.queries);
    },
    /** Adds metrics of a store's files and of their file system. */
    trackFiles: (usage: () => FileUsage): void => {
      gauge("todo_store_database_bytes", "Size of the SQLite file.", () => usage().databaseBytes);
      gauge("todo_store_wal_bytes", "Size of SQLite's write-ahead log.", () => usage().walBytes);
      gauge("todo_store_disk_free_bytes", "Free space on the store's file system.", () => usage().freeBytes);
      gauge("todo_store_disk_size_bytes", "Size of the store's file system.", () => usage().totalBytes);
    },
    /**
     * Adds metrics of scheduled backups.
     * @param lastSuccess returns the time of the last backup in milliseconds since 1970; 0 if none exists
     */
    trackBackups: (
      lastSuccess: () => number,
      failures: () => number,
      disk: () => DiskUsage,
      intervalMs: number,
    ): void => {
      gauge("todo_backup_disk_free_bytes", "Free space on the backups' file system.", () => disk().freeBytes);
      gauge("todo_backup_disk_size_bytes", "Size of the backups' file system.", () => disk().totalBytes);
      gauge(
        "todo_backup_last_success_timestamp_seconds",
        "When the last backup finished, in seconds since 1970; 0 if none exists.",
        () => lastSuccess() / 1000,
      );
      gauge("todo_backup_interval_seconds", "Time between two scheduled backups.", () => intervalMs / 1000);
      new Counter({
        name: "todo_backup_failures_total",
        help: "Failed scheduled backups.",
        registers,
        collect() {
          this.reset();
          this.inc(failures());
        },
      });
    },
    /**
     * Adds metrics of the certificate.
     * @param expiry returns the end of the validity of the certificate in use
     * @param isRejected returns whether the files cannot be used, so that a previous certificate is in use
     */
    trackCertificate: (expiry: () => Date, isRejected: () => boolean): void => {
      gauge(
        "todo_certificate_expiry_timestamp_seconds",
        "When the server's certificate expires, in seconds since 1970.",
        () => expiry().getTime() / 1000,
      );
      gauge(
        "todo_certificate_files_rejected",
        "1 while the files of the certificate cannot be used and a previous certificate is in use, otherwise 0.",
        () => (isRejected() ? 1 : 0),
      );
    },
    /** Returns a service with only `GET /metrics`, in Prometheus text format 0.0.4, for a separate port. */
    service: (options: { readonly onLoopback: boolean; readonly log: Log }): Service =>
      metricsService(registry, options.onLoopback, options.log),
  };
}

/** Maximum concurrent scrapes. */
const MAX_SCRAPES = 100;

function metricsService(registry: Registry, onLoopback: boolean, log: Log): Service {
  const network = { ...DEFAULT_NETWORK, onLoopback };
  const getConnectionInfo = createConnectionInfoReader(network.trustedProxies);
  const origins = createOriginPolicy(network, getConnectionInfo);
  const limiter = new LogLimiter();
  const middleware = createMiddleware({
    origins,
    log,
    limiter,
    accessLog: false,
    getConnectionInfo,
    limits: { ...DEFAULT_LIMITS, maxRequests: MAX_SCRAPES },
    monotonicNow: () => performance.now(),
    // Prometheus may use any name of the server.
    anyHostPaths: new Set(onLoopback ? [] : ["/metrics"]),
  });
  const headers = { "Content-Type": Registry.PROMETHEUS_CONTENT_TYPE };
  const scrape = publicRoute({ GET: async () => respond(200, headers, await registry.metrics()) });
  const routes = {
    "/metrics": middleware.apply("/metrics", scrape),
    "/*": middleware.apply("/*", notFoundRoute),
  };
  return { routes, drain: middleware.drain, close: () => limiter.flush() };
}
