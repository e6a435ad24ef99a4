import type { SQL } from "bun";
import { ChangeFeed } from "../../change-feed.ts";
import {
  encodeTodo,
  type ListQuery,
  type Position,
  type TodoEvent,
  type TodoId,
  type TodoJson,
  type TodoList,
  type Written,
} from "../../todo.ts";
import { sha256 } from "../records/idempotency.ts";
import { DEFAULTS, type Store, type StoreOptions } from "../store.ts";
import { Table } from "../table/table.ts";
import { WriteHealth } from "../write-health.ts";
import { Batch, type Outcomes, type Waiting, type Write } from "./batch.ts";
import { PostgresKeys } from "./keys.ts";
import {
  openPrimary,
  PRIMARY_DEFAULTS,
  type Primary,
  type PrimaryOptions,
  storeUnavailable,
  TimeoutError,
  type Value,
} from "./primary.ts";
import { RefreshQueue } from "./refresh-queue.ts";
import { decodeTail, Replica, type TailRow } from "./replica.ts";
import { ensureSchema } from "./schema.ts";

/** The greatest id: PostgreSQL's integers are signed 64-bit. */
export const MAX_POSTGRES_ID: TodoId = 2n ** 63n - 1n;
/** The interval of polling, because notifications can be lost and reads may be rare. */
const POLL_INTERVAL_MS = 1000;
/** The minimum number of stored events. A replica that is further behind must reload everything. */
const MIN_EVENTS = 100_000;
/** The number of to-dos that one query reads. */
const FETCH_SIZE = 10_000;
/** The parameters of 100 inserts, which need more than a page: a table whose last page has room still needs space on the disk. */
const INSERTS_OF_CHECK: readonly Value[] = [
  `"${"x".repeat(120)}"\n`.repeat(100).trimEnd(),
  "\n".repeat(99),
  "\n".repeat(99),
  ...[null, null, null],
];

export interface PostgresOptions extends StoreOptions, Partial<PrimaryOptions> {}

const POSTGRES_DEFAULTS = { ...DEFAULTS, ...PRIMARY_DEFAULTS };

/**
 * Opens a database, and creates or migrates its schema `todo_service` if needed. Throws an Error with the reason if it cannot.
 * Many processes may share the database, each with all to-dos in memory. A read first fetches new events from the
 * database, so it sees every write that any process has acknowledged.
 */
export async function openPostgres(url: string, given: PostgresOptions = {}): Promise<Store> {
  const options = { ...POSTGRES_DEFAULTS, ...given };
  return openPrimary(url, options, async (primary) => {
    await primary.run(ensureSchema);
    return new PostgresStore(primary, await load(primary, options.maxEvents), options);
  });
}

class PostgresStore implements Store {
  readonly keys: PostgresKeys;
  readonly pool: Primary["pool"];
  readonly #primary: Primary;
  readonly #options: typeof POSTGRES_DEFAULTS;
  #replica: Replica;
  #waiting: Write[] = [];
  #writing: Promise<void> | undefined;
  /** Whether the last batch has failed, and no check of writes has succeeded since. */
  readonly #writeHealth = new WriteHealth(() => this.#checkWrites());
  readonly #refreshes: RefreshQueue;
  readonly #pollTimer: NodeJS.Timeout;
  #isClosed = false;

  constructor(primary: Primary, replica: Replica, options: typeof POSTGRES_DEFAULTS) {
    this.keys = new PostgresKeys(primary);
    this.#primary = primary;
    this.pool = primary.pool;
    this.#replica = replica;
    this.#options = options;
    this.#refreshes = new RefreshQueue(options.queryTimeoutMs, () => this.#refresh());
    this.#pollTimer = setInterval(() => {
      if (this.#replica.feed.hasSubscribers) this.#listen();
      else primary.unlisten();
      this.#refreshes.poll();
    }, POLL_INTERVAL_MS).unref();
  }

  get count(): number {
    return this.#replica.table.count;
  }

  get eventLag(): number {
    return this.#replica.feed.lag;
  }

  async insert(title: string, idempotencyKey?: string): Promise<Written & { id: TodoId; json: TodoJson }> {
    const { id, position } = await this.#write<Written & { id: TodoId }>((waiting) => ({
      ...waiting,
      type: "insert",
      title,
      keyHash: idempotencyKey === undefined ? "" : sha256(idempotencyKey),
      titleHash: idempotencyKey === undefined ? "" : sha256(title),
    }));
    return { id, json: encodeTodo({ id, title, done: false }), position };
  }

  async get(id: TodoId): Promise<TodoJson | undefined> {
    return (await this.#latest()).table.get(id);
  }

  async list(query: ListQuery, maxBlobBytes?: number): Promise<TodoList> {
    const { position, table } = await this.#latest();
    return { position, ...table.list(query, maxBlobBytes) };
  }

  async setDone(id: TodoId, done: boolean): Promise<Written & { json: TodoJson | undefined }> {
    if (id > MAX_POSTGRES_ID) return { json: undefined, position: this.#replica.position };
    return this.#write((waiting) => ({ ...waiting, type: "update", id, done }));
  }

  async delete(id: TodoId): Promise<Written & { existed: boolean }> {
    if (id > MAX_POSTGRES_ID) return { existed: false, position: this.#replica.position };
    return this.#write((waiting) => ({ ...waiting, type: "delete", id }));
  }

  async position(): Promise<Position> {
    return (await this.#latest()).position;
  }

  /** Asks the database only after a failed write. */
  checkWrites(): Promise<void> | undefined {
    return this.#writeHealth.run();
  }

  /** Commits a batch without writes, which fails without a synchronous standby. Then rolls back inserts, which a full disk rejects. */
  async #checkWrites(): Promise<void> {
    await this.#sendBatch(new Batch());
    const limits = [Number.MAX_SAFE_INTEGER, Number.MAX_SAFE_INTEGER];
    await this.#primary.run(async (sql) => {
      using connection = await sql.reserve();
      await connection.unsafe("BEGIN");
      try {
        const { epoch, sequence } = this.#replica.position;
        await connection.unsafe(WRITE, [epoch, sequence, ...limits, ...INSERTS_OF_CHECK]);
      } finally {
        await connection.unsafe("ROLLBACK");
      }
    });
  }

  async *events(after: Position, signal: AbortSignal): AsyncGenerator<TodoEvent, void, undefined> {
    let replica: Replica;
    try {
      replica = await this.#latest();
    } catch (error) {
      if (this.#isClosed) return;
      throw error;
    }
    // No await between these calls, because the timer stops listening while the feed has no subscribers.
    this.#listen();
    yield* replica.feed.after(after, signal);
  }

  async close(): Promise<void> {
    clearInterval(this.#pollTimer);
    this.#refreshes.close();
    while (this.#writing !== undefined) await this.#writing;
    await this.keys.close();
    this.#isClosed = true;
    this.#replica.feed.end();
    await this.#primary.close();
  }

  /** Returns the replica with all writes that were acknowledged before this call. */
  async #latest(): Promise<Replica> {
    try {
      await this.#refreshes.next();
    } catch (cause) {
      throw storeUnavailable(cause);
    }
    return this.#replica;
  }

  /** Polls soon after each notification. Only subscribers need this. */
  #listen(): void {
    this.#primary.listen((sequence = Number.POSITIVE_INFINITY) => {
      if (sequence > this.#replica.position.sequence) this.#refreshes.pollSoon();
    });
  }

  /** Applies the new events, or reloads everything if some of them are no longer stored. */
  async #refresh(): Promise<void> {
    const row = await this.#queryAtPosition<TailRow>(TAIL);
    if (this.#replica.follow(decodeTail(row))) return;
    const replica = await load(this.#primary, this.#options.maxEvents);
    if (this.#isClosed) throw new Error("the store is closed");
    this.#replica.feed.end();
    this.#replica = replica;
  }

  /** Sends a query whose first parameters are the replica's position. */
  async #queryAtPosition<Row>(query: string, values: readonly Value[] = []): Promise<Row> {
    const { epoch, sequence } = this.#replica.position;
    const [row] = await this.#primary.query<Row>(query, [epoch, sequence, ...values]);
    if (row === undefined) throw storeUnavailable(new Error(NO_STORE_ROW));
    return row;
  }

  #write<Result>(write: (waiting: Waiting<Result>) => Write): Promise<Result> {
    const { promise, resolve: settle, reject: fail } = Promise.withResolvers<Result>();
    this.#waiting.push(write({ settle, fail }));
    this.#writing ??= this.#writeBatches();
    return promise;
  }

  /** Writes batches until no write waits. */
  async #writeBatches(): Promise<void> {
    while (this.#waiting.length > 0) {
      // The first turn reads requests that arrived meanwhile, the second those caused by the last responses.
      await new Promise(setImmediate);
      await new Promise(setImmediate);
      const batch = new Batch();
      this.#waiting = this.#waiting.filter((write) => !batch.add(write));
      await this.#writeBatch(batch);
    }
    this.#writing = undefined;
  }

  async #writeBatch(batch: Batch): Promise<void> {
    const { onBatch, onIdempotencyKeysEvicted } = this.#options;
    const started = performance.now();
    // A replica that has been replaced meanwhile does not matter.
    const replica = this.#replica;
    try {
      const row = await this.#sendBatch(batch);
      this.#writeHealth.succeeded();
      // The result is ignored, because the writes are done and the next read refreshes again.
      const tail = decodeTail(row);
      replica.follow(tail);
      batch.settle(row, tail, this.#options.maxTodos);
      onBatch(batch.size, performance.now() - started);
      if (row.evicted > 0n) onIdempotencyKeysEvicted(Number(row.evicted));
    } catch (cause) {
      const failure = storeUnavailable(cause);
      this.#writeHealth.failed();
      batch.fail(failure);
      if (!(failure.cause instanceof TimeoutError)) return;
      // The waiting writes would only time out as well.
      for (const { fail } of this.#waiting) fail(failure);
      this.#waiting = [];
    }
  }

  #sendBatch(batch: Batch): Promise<TailRow & Outcomes> {
    const { maxTodos, maxEvents } = this.#options;
    const values = [maxTodos, Math.max(maxEvents, MIN_EVENTS), ...batch.values];
    return this.#queryAtPosition<TailRow & Outcomes>(WRITE, values);
  }
}

const NO_STORE_ROW = "the table todo_service.store is empty: restore the database from a backup";
/** Fails on a standby, because pg_current_wal_lsn does. The driver may have reconnected to one by itself. */
const TAIL = "SELECT * FROM todo_service.tail($1, $2) WHERE pg_current_wal_lsn() IS NOT NULL";
/** Returns what tail returns, with as many of the latest events as requested. */
const LATEST = "SELECT t.* FROM todo_service.totals() s, todo_service.tail(s.epoch, s.sequence - $1) t";
const WRITE = "SELECT * FROM todo_service.write($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)";

/** Loads a snapshot of all to-dos and the stored changes. */
function load(primary: Primary, maxEvents: number): Promise<Replica> {
  return primary.run((sql, progress) =>
    sql.begin("ISOLATION LEVEL REPEATABLE READ READ ONLY", async (snapshot) => {
      const [row] = await snapshot.unsafe<TailRow[]>(LATEST, [maxEvents]);
      if (row === undefined) throw new Error(NO_STORE_ROW);
      const { position, events } = decodeTail(row);
      const { epoch } = events[0]?.position ?? position;
      const feed = new ChangeFeed(maxEvents, { epoch, sequence: position.sequence - events.length });
      for (const event of events) feed.publish(event);
      return new Replica(await loadTable(snapshot, progress), feed);
    }),
  );
}

async function loadTable(sql: SQL, progress: () => void): Promise<Table> {
  const table = new Table();
  for await (const rows of readTodos(sql)) {
    progress();
    for (const { id, todo } of rows) table.append(id, todo);
  }
  return table;
}

/** Yields all to-dos by ascending id, in batches; the last one may be empty. */
export async function* readTodos(
  sql: SQL,
): AsyncGenerator<readonly { readonly id: TodoId; readonly todo: string }[], void, undefined> {
  let last = 0n;
  for (;;) {
    const rows = await sql.unsafe<{ id: TodoId; todo: string }[]>(
      "SELECT * FROM todo_service.todos_after($1, $2)",
      [last, FETCH_SIZE],
    );
    yield rows;
    last = rows.at(-1)?.id ?? last;
    if (rows.length < FETCH_SIZE) return;
  }
}
