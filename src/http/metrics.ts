/** What an observer sees, as Prometheus metrics. Only what serves them loads this file, for the library takes a while. */
import {
  Counter,
  collectDefaultMetrics,
  Gauge,
  Histogram,
  type HistogramConfiguration,
  type LabelValues,
  Registry,
} from "prom-client";
import { openDoor } from "./door.ts";
import type { Log } from "./log.ts";
import {
  AUTHENTICATION_OUTCOMES,
  type Observer,
  type RouteObserver,
  STORE_OPERATIONS,
  SURFACES,
} from "./observe.ts";
import { originPolicy } from "./origin.ts";
import { reply } from "./reply.ts";
import { nowhere, open } from "./route.ts";
import type { Service } from "./service.ts";

export interface MetricsOptions {
  /** Of the service. */
  readonly version: string;
  /** Name and version of what runs it. */
  readonly runtime: string;
}

export interface Metrics {
  readonly observer: Observer;
  /** To be told of each batch of writes that has been done, and how long its transaction took. */
  readonly onBatch: (writes: number, ms: number) => void;
  /** Takes a function that says how many to-dos the store holds, and how many it may. */
  readonly holds: (todos: () => number, most: number) => void;
  /** `GET /metrics`, in Prometheus' text format 0.0.4, and nothing else; to be served on a port of its own. */
  readonly service: (options: MetricsServiceOptions) => Service;
}

/** From half a millisecond, below which most reads stay, to what a client waits for at most. */
const SECONDS = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10];
const BATCH_WRITES = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024];

/** Whatever else is sent as a method is one more, so that nobody can make up series. */
const METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];
const OTHER_METHOD = "other";

/** Of what the library collects by itself, that which is true on Bun: heap spaces, handles and collections are not. */
const TRUE_ON_BUN = new Set([
  "process_cpu_user_seconds_total",
  "process_cpu_system_seconds_total",
  "process_cpu_seconds_total",
  "process_start_time_seconds",
  "process_resident_memory_bytes",
  "process_virtual_memory_bytes",
  "process_open_fds",
  "process_max_fds",
  "nodejs_eventloop_lag_seconds",
  "nodejs_eventloop_lag_max_seconds",
  "nodejs_eventloop_lag_p50_seconds",
  "nodejs_eventloop_lag_p99_seconds",
]);

/** Starts to count. */
export function openMetrics({ version, runtime }: MetricsOptions): Metrics {
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
    help: "Always 1; its labels say which version runs, and on what.",
    labelNames: ["version", "runtime"],
    registers,
  }).set({ version, runtime }, 1);

  const requests: { readonly labels: RequestLabels; value: number }[] = [];
  new Counter({
    name: "todo_http_requests_total",
    help: "Requests answered, by the route's pattern, method and status.",
    labelNames: ["route", "method", "status"],
    registers,
    collect() {
      this.reset();
      for (const { labels, value } of requests) this.inc(labels, value);
    },
  });
  const requestSeconds = new Distribution({
    name: "todo_http_request_duration_seconds",
    help: "Seconds from a request's head to its response, without the sending of a long list or of events.",
    labelNames: ["route", "method"],
    buckets: SECONDS,
    registers,
  });
  let inFlight = 0;
  gauge("todo_http_requests_in_flight", "Requests that wait for their response now.", () => inFlight);

  const authentications = new Counter({
    name: "todo_authentications_total",
    help: "Requests to a guarded surface, by what became of their credential.",
    labelNames: ["surface", "outcome"],
    registers,
  });
  for (const surface of SURFACES)
    for (const outcome of AUTHENTICATION_OUTCOMES) authentications.inc({ surface, outcome }, 0);

  const storeSeconds = new Distribution({
    name: "todo_store_operation_duration_seconds",
    help: "Seconds that the store took to answer, where it did not do so at once from memory.",
    labelNames: ["operation"],
    buckets: SECONDS,
    registers,
  });
  const storeFailures = new Counter({
    name: "todo_store_failures_total",
    help: "Calls that the store did not carry out: it could not be reached or written, was full, or had a fault.",
    labelNames: ["operation", "reason"],
    registers,
  });
  for (const operation of STORE_OPERATIONS) storeFailures.inc({ operation, reason: "unavailable" }, 0);
  const batchWrites = new Distribution({
    name: "todo_store_batch_writes",
    help: "Writes that shared a transaction, on SQLite and PostgreSQL.",
    buckets: BATCH_WRITES,
    registers,
  }).series({});
  const batchSeconds = new Distribution({
    name: "todo_store_batch_duration_seconds",
    help: "Seconds that such a transaction took, until it was on disk or the database had acknowledged it.",
    buckets: SECONDS,
    registers,
  }).series({});

  gauge("todo_js_heap_used_bytes", "JavaScript heap in use in bytes.", () => process.memoryUsage().heapUsed);
  collectDefaultMetrics({ register: registry });
  for (const { name } of registry.getMetricsAsArray()) {
    if (!name.startsWith("todo_") && !TRUE_ON_BUN.has(name)) registry.removeSingleMetric(name);
  }

  /** Its series come to be with the first request of their kind. */
  function routeObserver(route: string): RouteObserver {
    const ofMethod = (method: string) => {
      const byStatus = new Map<number, { value: number }>();
      let seconds: Series | undefined;
      return (status: number, ms: number): void => {
        seconds ??= requestSeconds.series({ route, method });
        seconds.observe(ms / 1000);
        const count = byStatus.get(status);
        if (count !== undefined) {
          count.value++;
          return;
        }
        const first = { labels: { route, method, status }, value: 1 };
        byStatus.set(status, first);
        requests.push(first);
      };
    };
    const methods = new Map(METHODS.map((method) => [method, ofMethod(method)]));
    const other = ofMethod(OTHER_METHOD);
    return {
      waiting: (change) => {
        inFlight += change;
      },
      answered: (method, status, ms) => (methods.get(method) ?? other)(status, ms),
    };
  }

  return {
    observer: {
      route: routeObserver,
      store: (operation) => {
        let seconds: Series | undefined;
        return {
          answered: (ms) => {
            seconds ??= storeSeconds.series({ operation });
            seconds.observe(ms / 1000);
          },
          failed: (reason) => storeFailures.inc({ operation, reason }),
        };
      },
      surface: (surface) => (outcome) => authentications.inc({ surface, outcome }),
      subscribers: (count) => gauge("todo_event_subscribers", "Streams of events that are open now.", count),
    },
    onBatch: (writes, ms) => {
      batchWrites.observe(writes);
      batchSeconds.observe(ms / 1000);
    },
    holds: (todos, most) => {
      gauge("todo_store_todos", "To-dos that the store holds, as far as this process knows.", todos);
      gauge("todo_store_todos_limit", "To-dos that the store may hold; then inserts fail.", () => most);
    },
    service: (options) => metricsService(registry, options),
  };
}

/** More scrapers at a time are refused. */
const MAX_SCRAPES = 100;

export interface MetricsServiceOptions {
  /** Whether it is reached over loopback only: then it answers for loopback's names alone. */
  readonly onLoopback: boolean;
  readonly log: Log;
}

function metricsService(registry: Registry, { onLoopback, log }: MetricsServiceOptions): Service {
  const origins = originPolicy({ onLoopback, allowedHosts: [], corsOrigins: [] });
  const door = openDoor({
    origins,
    log,
    accessLog: false,
    maxRequests: MAX_SCRAPES,
    now: () => performance.now(),
  });
  const headers = { "Content-Type": registry.contentType };
  const scrape = open({ GET: async () => reply(200, headers, await registry.metrics()) });
  const routes = { "/metrics": door.lead("/metrics", scrape), "/*": door.lead("/*", nowhere) };
  return { routes, retire: () => {}, drain: door.close };
}

interface RequestLabels {
  readonly route: string;
  readonly method: string;
  readonly status: number;
}

/** The observations of one label set. */
class Series {
  readonly #bounds: readonly number[];
  /** How many there were up to each bound but not up to the one before; those beyond all come last. */
  readonly #counts: number[];
  #sum = 0;

  constructor(bounds: readonly number[]) {
    this.#bounds = bounds;
    this.#counts = new Array<number>(bounds.length + 1).fill(0);
  }

  observe(value: number): void {
    let bucket = 0;
    while (value > (this.#bounds[bucket] ?? Infinity)) bucket++;
    this.#counts[bucket] = (this.#counts[bucket] ?? 0) + 1;
    this.#sum += value;
  }

  /** How many there were up to each bound, up to any, and their sum. */
  read(): { readonly upTo: readonly number[]; readonly sum: number } {
    let all = 0;
    return { upTo: this.#counts.map((count) => (all += count)), sum: this.#sum };
  }
}

/** A histogram whose observations cost some 10 ns, where the library's own take 0.4 µs. */
class Distribution<Label extends string> extends Histogram<Label> {
  readonly #configuration: HistogramConfiguration<Label> & { readonly buckets: number[] };
  readonly #series: { readonly labels: LabelValues<Label>; readonly series: Series }[] = [];

  constructor(configuration: HistogramConfiguration<Label> & { readonly buckets: number[] }) {
    super(configuration);
    this.#configuration = configuration;
  }

  /** The series of a label set, to be asked for once. */
  series(labels: LabelValues<Label>): Series {
    const series = new Series(this.#configuration.buckets);
    this.#series.push({ labels, series });
    return series;
  }

  /** What the registry asks for. */
  async getForPromString() {
    const { name, help, buckets } = this.#configuration;
    const bounds = [...buckets, "+Inf"];
    const values = this.#series.flatMap(({ labels, series }) => {
      const { upTo, sum } = series.read();
      return [
        ...upTo.map((value, index) => ({
          metricName: `${name}_bucket`,
          labels: { ...labels, le: bounds[index] },
          value,
        })),
        { metricName: `${name}_sum`, labels, value: sum },
        { metricName: `${name}_count`, labels, value: upTo.at(-1) },
      ];
    });
    return { name, help, type: "histogram", values };
  }
}
