/** Prometheus metrics. Only a server with metrics imports this file, because prom-client is slow to load. */
import { Counter, Histogram } from "prom-client";
import type { TodoStore } from "../../todo.ts";
import {
  AUTHENTICATION_OUTCOMES,
  type Observer,
  STORE_OPERATIONS,
  type StoreFailure,
  type StoreOperation,
  SURFACES,
} from "./instrumentation.ts";
import { MetricRegistry } from "./metric-registry.ts";

/** The operations whose failure means that the store is not writable. */
const WRITES: ReadonlySet<StoreOperation> = new Set(["insert", "set_done", "delete"]);

/** Most reads take less than the first bucket; few clients wait longer than the last one. */
const SECONDS = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10];
const BATCH_WRITES = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024];

/** Other methods share one label value, so that clients cannot create series. */
const METHODS: ReadonlySet<string> = new Set(["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]);
const OTHER_METHOD = "other";

export type Metrics = ReturnType<typeof openMetrics>;

/** Creates the metrics of a service and its runtime, with their versions, and starts to collect them. */
export function openMetrics(versions: { readonly version: string; readonly runtime: string }) {
  const registry = new MetricRegistry();
  const help = "Always 1; the labels are the version of the service and its runtime.";
  registry.info("todo_build_info", help, ["version", "runtime"], () => versions);
  return {
    /** Where the parts of the server register their own metrics. */
    registry,
    /** Callbacks for the options of a store. */
    storeCallbacks: measureBatches(registry),
    /** Returns what measures a service with this store. */
    observe: (store: Pick<TodoStore, "checkWrites">): Observer => ({
      route: measureRequests(registry),
      store: measureStore(registry, store),
      surface: countAuthentications(registry),
      subscribers: (count) => registry.gauge("todo_event_subscribers", "Open event streams.", count),
    }),
  };
}

function measureRequests(registry: MetricRegistry): Observer["route"] {
  const { registers } = registry;
  const requests = new Counter({
    name: "todo_http_requests_total",
    help: "HTTP requests by route pattern, method and status.",
    labelNames: ["route", "method", "status"],
    registers,
  });
  const seconds = new Histogram({
    name: "todo_http_request_duration_seconds",
    help: "Seconds from a request's head to its response, without the time to send a long list or an event stream.",
    labelNames: ["route", "method"],
    buckets: SECONDS,
    registers,
  });
  let inFlight = 0;
  const help = "Requests that are waiting for their response.";
  registry.gauge("todo_http_requests_in_flight", help, () => inFlight);
  return (route) => ({
    waiting: (change) => {
      inFlight += change;
    },
    answered: (name, status, ms) => {
      const method = METHODS.has(name) ? name : OTHER_METHOD;
      requests.inc({ route, method, status });
      seconds.observe({ route, method }, ms / 1000);
    },
  });
}

function countAuthentications({ registers }: MetricRegistry): Observer["surface"] {
  const authentications = new Counter({
    name: "todo_authentications_total",
    help: "Authentications at a guarded surface by outcome. A request that passed may still be rejected, for example by its scope.",
    labelNames: ["surface", "outcome"],
    registers,
  });
  for (const surface of SURFACES)
    for (const outcome of AUTHENTICATION_OUTCOMES) authentications.inc({ surface, outcome }, 0);
  return (surface) => (outcome) => authentications.inc({ surface, outcome });
}

function measureStore(registry: MetricRegistry, store: Pick<TodoStore, "checkWrites">): Observer["store"] {
  const { registers } = registry;
  const seconds = new Histogram({
    name: "todo_store_operation_duration_seconds",
    help: "Seconds that a store operation took, except for results directly from memory.",
    labelNames: ["operation"],
    buckets: SECONDS,
    registers,
  });
  const failures = new Counter({
    name: "todo_store_failures_total",
    help: "Failed store operations by reason: unavailable, full, or an error.",
    labelNames: ["operation", "reason"],
    registers,
  });
  // Without a first value of 0, rate() would not see the first failures.
  for (const operation of STORE_OPERATIONS)
    for (const reason of ["unavailable", "error"]) failures.inc({ operation, reason }, 0);
  const writeState = new WriteState(store);
  const help = "0 while writes or the files of the store fail, otherwise 1.";
  registry.gauge("todo_store_writable", help, () => (writeState.read() ? 1 : 0));
  return (operation) => {
    const isWrite = WRITES.has(operation);
    return {
      answered: (ms) => {
        seconds.observe({ operation }, ms / 1000);
        writeState.succeeded(isWrite);
      },
      failed: (reason) => {
        failures.inc({ operation, reason });
        writeState.failed(isWrite, reason);
      },
    };
  };
}

/** Whether the store can be written, as its last operations show. */
class WriteState {
  readonly #store: Pick<TodoStore, "checkWrites">;
  #writesFail = false;
  #isUnreachable = false;
  #isChecking = false;

  constructor(store: Pick<TodoStore, "checkWrites">) {
    this.#store = store;
  }

  succeeded(isWrite: boolean): void {
    this.#isUnreachable = false;
    if (isWrite) this.#writesFail = false;
  }

  failed(isWrite: boolean, reason: StoreFailure): void {
    if (reason === "unavailable") this.#isUnreachable = true;
    if (isWrite && reason !== "full") this.#writesFail = true;
  }

  /**
   * Returns what is known, and checks again for the next call. In the background, because a scrape must not wait for a store
   * that does not answer. The check costs nothing while writes succeed, and notices a failure without a write.
   */
  read(): boolean {
    const isWritable = !this.#writesFail && !this.#isUnreachable;
    if (!this.#isChecking) this.#check();
    return isWritable;
  }

  async #check(): Promise<void> {
    if (this.#store.checkWrites === undefined) return;
    this.#isChecking = true;
    try {
      await this.#store.checkWrites();
      this.succeeded(true);
    } catch {
      // The next scrape checks again.
      this.#writesFail = true;
    }
    this.#isChecking = false;
  }
}

/** Returns the callbacks with which a store reports its batches and evictions. */
function measureBatches({ registers }: MetricRegistry) {
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
  return {
    onBatch: (writes: number, ms: number): void => {
      batchWrites.observe(writes);
      batchSeconds.observe(ms / 1000);
    },
    onIdempotencyKeysEvicted: (count: number): void => evictedKeys.inc(count),
  };
}
