/** Prometheus metrics. Only a server with metrics imports this file, because prom-client is slow to load. */
import { Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from "prom-client";
import type { Awaitable } from "../../awaitable.ts";
import type { TodoStore } from "../../todo.ts";
import { AUTHENTICATION_OUTCOMES, type Observer, SURFACES } from "./instrumentation.ts";

/** The default metrics of prom-client that are correct on Bun. Those of heap spaces, handles and collections are not. */
const SUPPORTED_ON_BUN = /^(?:process_(?!heap)|nodejs_eventloop_lag_(?:(?:max|p50|p99)_)?seconds$)/;

/** Most reads take less than the first bucket; few clients wait longer than the last one. */
const SECONDS = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10];
const BATCH_WRITES = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024];

/** Other methods share one label value, so that clients cannot create series. */
const METHODS: ReadonlySet<string> = new Set(["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]);

/** The metrics of a process. The parts of the server register theirs; each scrape reads them. */
export class Metrics {
  readonly #registry = new Registry();
  readonly #registers = [this.#registry];
  /** The media type of `text`. */
  readonly contentType = Registry.PROMETHEUS_CONTENT_TYPE;
  /** Callbacks for the options of a store. */
  readonly storeCallbacks: ReturnType<typeof measureBatches>;

  /** Registers the metrics of the process and of the build. */
  constructor(versions: { readonly version: string; readonly runtime: string }) {
    collectDefaultMetrics({ register: this.#registry });
    for (const { name } of this.#registry.getMetricsAsArray())
      if (!SUPPORTED_ON_BUN.test(name)) this.#registry.removeSingleMetric(name);
    const heapUsed = () => process.memoryUsage().heapUsed;
    this.gauge("todo_js_heap_used_bytes", "JavaScript heap in use in bytes.", heapUsed);
    const help = "Always 1; the labels are the version of the service and its runtime.";
    this.info("todo_build_info", help, ["version", "runtime"], () => versions);
    this.storeCallbacks = measureBatches(this);
  }

  /** Returns what measures a service with this store. */
  observe(store: Pick<TodoStore, "checkWrites">): Observer {
    return {
      route: measureRequests(this),
      store: measureStore(this, store),
      surface: countAuthentications(this),
      subscribers: (count) => this.gauge("todo_event_subscribers", "Open event streams.", count),
    };
  }

  /** Registers a value that can go up and down. */
  gauge(name: string, help: string, read: () => Awaitable<number>): void {
    new Gauge({
      name,
      help,
      registers: this.#registers,
      async collect() {
        this.set(await read());
      },
    });
  }

  /** Registers a value that only goes up. */
  counter<Label extends string>(
    name: string,
    help: string,
    labelNames: readonly Label[] = [],
  ): Counter<Label> {
    return new Counter({ name, help, labelNames, registers: this.#registers });
  }

  /** Registers the distribution of a value. */
  histogram<Label extends string>(
    name: string,
    help: string,
    buckets: number[],
    labelNames: readonly Label[] = [],
  ): Histogram<Label> {
    return new Histogram({ name, help, buckets, labelNames, registers: this.#registers });
  }

  /** Registers a gauge that is 1 with these labels; without labels, it is absent. */
  info<Label extends string>(
    name: string,
    help: string,
    labelNames: readonly Label[],
    read: () => Readonly<Record<Label, string>> | undefined,
  ): void {
    new Gauge({
      name,
      help,
      labelNames,
      registers: this.#registers,
      collect() {
        this.reset();
        const labels = read();
        if (labels !== undefined) this.set(labels, 1);
      },
    });
  }

  /** Returns all metrics in the text format of Prometheus. */
  text(): Promise<string> {
    return this.#registry.metrics();
  }
}

function measureRequests(metrics: Metrics): Observer["route"] {
  const byStatus = "HTTP requests by route pattern, method and status.";
  const requests = metrics.counter("todo_http_requests_total", byStatus, ["route", "method", "status"]);
  const duration =
    "Seconds from a request's head to its response, without the time to send a long list or an event stream.";
  const labels = ["route", "method"] as const;
  const seconds = metrics.histogram("todo_http_request_duration_seconds", duration, SECONDS, labels);
  let inFlight = 0;
  const help = "Requests that are waiting for their response.";
  metrics.gauge("todo_http_requests_in_flight", help, () => inFlight);
  return (route) => ({
    waiting: (change) => {
      inFlight += change;
    },
    answered: (name, status, ms) => {
      const method = METHODS.has(name) ? name : "other";
      requests.inc({ route, method, status });
      seconds.observe({ route, method }, ms / 1000);
    },
  });
}

function countAuthentications(metrics: Metrics): Observer["surface"] {
  const help =
    "Authentications at a guarded surface by outcome. A request that passed may still be rejected, for example by its scope.";
  const authentications = metrics.counter("todo_authentications_total", help, ["surface", "outcome"]);
  for (const surface of SURFACES)
    for (const outcome of AUTHENTICATION_OUTCOMES) authentications.inc({ surface, outcome }, 0);
  return (surface) => (outcome) => authentications.inc({ surface, outcome });
}

function measureStore(metrics: Metrics, store: Pick<TodoStore, "checkWrites">): Observer["store"] {
  const duration = "Seconds that a store operation took, except for results directly from memory.";
  const seconds = metrics.histogram("todo_store_operation_duration_seconds", duration, SECONDS, [
    "operation",
  ]);
  const failed = "Failed store operations by reason: unavailable, full, or an error.";
  const failures = metrics.counter("todo_store_failures_total", failed, ["operation", "reason"]);
  const state = { writesFail: false, isUnreachable: false, isChecking: false };
  /**
   * Checks again for the next scrape. In the background, because a scrape must not wait for a store that does not answer.
   * The check costs nothing while writes succeed, and notices a failure without a write.
   */
  const check = async (): Promise<void> => {
    if (store.checkWrites === undefined || state.isChecking) return;
    state.isChecking = true;
    try {
      await store.checkWrites();
      state.writesFail = state.isUnreachable = false;
    } catch {
      // The next scrape checks again.
      state.writesFail = true;
    }
    state.isChecking = false;
  };
  metrics.gauge("todo_store_writable", "0 while writes or the files of the store fail, otherwise 1.", () => {
    const isWritable = !state.writesFail && !state.isUnreachable;
    check();
    return isWritable ? 1 : 0;
  });
  return (operation, kind) => {
    // Without a first value of 0, rate() would not see the first failures.
    for (const reason of ["unavailable", "error"]) failures.inc({ operation, reason }, 0);
    return {
      answered: (ms) => {
        seconds.observe({ operation }, ms / 1000);
        state.isUnreachable = false;
        if (kind === "write") state.writesFail = false;
      },
      failed: (reason) => {
        failures.inc({ operation, reason });
        if (reason === "unavailable") state.isUnreachable = true;
        if (kind === "write" && reason !== "full") state.writesFail = true;
      },
    };
  };
}

/** Returns the callbacks with which a store reports its batches and evictions. */
function measureBatches(metrics: Metrics) {
  const writes = "Writes that shared a transaction, on SQLite and PostgreSQL.";
  const batchWrites = metrics.histogram("todo_store_batch_writes", writes, BATCH_WRITES);
  const duration = "Seconds until such a transaction was on disk or the database had acknowledged it.";
  const batchSeconds = metrics.histogram("todo_store_batch_duration_seconds", duration, SECONDS);
  const evicted =
    "Idempotency keys that were dropped before their 24 hours were over, to make room for newer ones.";
  const evictedKeys = metrics.counter("todo_idempotency_keys_evicted_total", evicted);
  return {
    onBatch: (count: number, ms: number): void => {
      batchWrites.observe(count);
      batchSeconds.observe(ms / 1000);
    },
    onIdempotencyKeysEvicted: (count: number): void => evictedKeys.inc(count),
  };
}
