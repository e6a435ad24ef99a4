import { Counter, collectDefaultMetrics, Gauge, Registry } from "prom-client";
import type { Awaitable } from "../../awaitable.ts";

/** The default metrics of prom-client that are correct on Bun. Those of heap spaces, handles and collections are not. */
const SUPPORTED_ON_BUN = /^(?:process_(?!heap)|nodejs_eventloop_lag_(?:(?:max|p50|p99)_)?seconds$)/;

/** Metrics that their owners register. Each scrape reads them. */
export class MetricRegistry {
  readonly #registry = new Registry();
  /** What prom-client's own metrics take as `registers`. */
  readonly registers = [this.#registry];
  /** The media type of `text`. */
  readonly contentType = Registry.PROMETHEUS_CONTENT_TYPE;

  /** Registers the metrics of the process. */
  constructor() {
    collectDefaultMetrics({ register: this.#registry });
    for (const { name } of this.#registry.getMetricsAsArray())
      if (!SUPPORTED_ON_BUN.test(name)) this.#registry.removeSingleMetric(name);
    const heapUsed = () => process.memoryUsage().heapUsed;
    this.gauge("todo_js_heap_used_bytes", "JavaScript heap in use in bytes.", heapUsed);
  }

  /** Registers a value that can go up and down. */
  gauge(name: string, help: string, read: () => Awaitable<number>): void {
    const { registers } = this;
    new Gauge({
      name,
      help,
      registers,
      async collect() {
        this.set(await read());
      },
    });
  }

  /** Registers a value that only goes up. */
  counter(name: string, help: string, read: () => number): void {
    const { registers } = this;
    new Counter({
      name,
      help,
      registers,
      collect() {
        this.reset();
        this.inc(read());
      },
    });
  }

  /** Registers a gauge that is 1 with these labels; without labels, it is absent. */
  info<Label extends string>(
    name: string,
    help: string,
    labelNames: readonly Label[],
    read: () => Readonly<Record<Label, string>> | undefined,
  ): void {
    const { registers } = this;
    new Gauge({
      name,
      help,
      labelNames: [...labelNames],
      registers,
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
