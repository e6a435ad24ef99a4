import type { Metrics } from "../http/observability/metrics.ts";
import type { Store } from "../storage/store.ts";

/** Registers the metrics of a store. */
export function registerStoreMetrics(
  metrics: Metrics,
  store: Pick<Store, "count" | "eventLag" | "fileUsage" | "pool" | "rescueFile">,
  maxTodos: number,
): void {
  const { pool } = store;
  const limit = "Maximum number of to-dos in the store; beyond it, inserts fail.";
  const lag = "Changes that the slowest event stream has not read.";
  metrics.gauge("todo_store_todos", "To-dos in the store, as far as this process knows.", () => store.count);
  metrics.gauge("todo_store_todos_limit", limit, () => maxTodos);
  metrics.gauge("todo_event_lag_events", lag, () => store.eventLag);
  metrics.info(
    "todo_store_rescue_info",
    "1 with the rescue file as a label, while the files of the store are wrong and that file has everything.",
    ["file"],
    () => (store.rescueFile === undefined ? undefined : { file: store.rescueFile }),
  );
  if (pool !== undefined) {
    const connections = "Maximum number of connections to the database.";
    metrics.gauge("todo_store_connections", connections, () => pool.connections);
    metrics.gauge("todo_store_queries", "Queries that run or wait for a connection.", () => pool.queries);
  }
  const { fileUsage } = store;
  if (fileUsage !== undefined) {
    const usage = () => store.fileUsage ?? fileUsage;
    const free = "Free space on the store's file system.";
    metrics.gauge("todo_store_database_bytes", "Size of the SQLite file.", () => usage().databaseBytes);
    metrics.gauge("todo_store_wal_bytes", "Size of SQLite's write-ahead log.", () => usage().walBytes);
    metrics.gauge("todo_store_disk_free_bytes", free, () => usage().freeBytes);
    metrics.gauge("todo_store_disk_size_bytes", "Size of the store's file system.", () => usage().totalBytes);
  }
}
