import type { SQL } from "bun";
import type { ListQuery, Position, TodoEvent, TodoId, TodoJson, TodoList, Written } from "../../todo.ts";
import { TimeoutError } from "../failure.ts";
import { sha256 } from "../records/idempotency.ts";
import { ServedKeys } from "../records/keys.ts";
import { TodoState } from "../state.ts";
import {
  DEFAULTS,
  PRIMARY_DEFAULTS,
  type PrimaryOptions,
  type Store,
  type StoreOptions,
  storeUnavailable,
} from "../store.ts";
import { Table } from "../table/table.ts";
import { WriteHealth, WriteQueue } from "../write-queue.ts";
import { Batch, type Outcomes } from "./batch.ts";
import { PostgresKeys } from "./keys.ts";
import { openPrimary, type Primary, type Value } from "./primary.ts";
import { RefreshQueue } from "./refresh-queue.ts";
import { decodeTail, follow, type TailRow } from "./replica.ts";
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
    return new PostgresStore(primary, await load(primary, options), options);
  });
}

/** What `todo_service.write` returns. */
interface WriteRow extends TailRow, Outcomes {
  /** The number of idempotency keys that it evicted. */
  readonly evicted: bigint;
}

class PostgresStore implements Store {
  readonly keys: ServedKeys;
  readonly pool: Primary["pool"];
  readonly #primary: Primary;
  readonly #options: typeof POSTGRES_DEFAULTS;
  readonly #queue: WriteQueue<Batch>;
  #replica: TodoState;
  /** Whether the last batch has failed, and no check of writes has succeeded since. */
  readonly #writeHealth = new WriteHealth(() => this.#checkWrites());
  readonly #refreshes: RefreshQueue;
  readonly #pollTimer: NodeJS.Timeout;
  #isClosed = false;

  constructor(primary: Primary, replica: TodoState, options: typeof POSTGRES_DEFAULTS) {
    this.keys = new ServedKeys(new PostgresKeys(primary));
    this.#primary = primary;
    this.pool = primary.pool;
    this.#replica = replica;
    this.#options = options;
    this.#queue = new WriteQueue(
      () => new Batch(options.maxTodos),
      (batch) => this.#commit(batch),
    );
    this.#refreshes = new RefreshQueue(options.queryTimeoutMs, () => this.#refresh());
    this.#pollTimer = setInterval(() => {
      if (this.#replica.feed.hasSubscribers) this.#listen();
      else primary.unlisten();
      this.#refreshes.poll();
    }, POLL_INTERVAL_MS).unref();
  }

  get count(): number {
    return this.#replica.count;
  }

  get eventLag(): number {
    return this.#replica.feed.lag;
  }

  insert(title: string, idempotencyKey?: string): Promise<Written & { id: TodoId; json: TodoJson }> {
    const [keyHash, titleHash] =
      idempotencyKey === undefined ? ["", ""] : [sha256(idempotencyKey), sha256(title)];
    return this.#queue.add((batch) => batch.insert({ title, keyHash, titleHash }));
  }

  async get(id: TodoId): Promise<TodoJson | undefined> {
    return (await this.#latest()).get(id);
  }

  async list(query: ListQuery, maxBlobBytes?: number): Promise<TodoList> {
    return (await this.#latest()).list(query, maxBlobBytes);
  }

  async setDone(id: TodoId, done: boolean): Promise<Written & { json: TodoJson | undefined }> {
    if (id > MAX_POSTGRES_ID) return { json: undefined, position: this.#replica.position };
    return this.#queue.add((batch) => batch.update({ id, done }));
  }

  async delete(id: TodoId): Promise<Written & { existed: boolean }> {
    if (id > MAX_POSTGRES_ID) return { existed: false, position: this.#replica.position };
    return this.#queue.add((batch) => batch.delete(id));
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
    await this.#sendBatch(new Batch(this.#options.maxTodos));
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

  async *events(after: Position, signal: AbortSignal): AsyncGenerator<readonly TodoEvent[], void, undefined> {
    let replica: TodoState;
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
    await this.#queue.whenIdle();
    await this.keys.flush();
    this.#isClosed = true;
    this.#replica.feed.end();
    await this.#primary.close();
  }

  /** Returns the replica with all writes that were acknowledged before this call. */
  async #latest(): Promise<TodoState> {
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
    if (follow(this.#replica, decodeTail(row))) return;
    const replica = await load(this.#primary, this.#options);
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

  async #commit(batch: Batch): Promise<void> {
    const { onBatch, onIdempotencyKeysEvicted } = this.#options;
    const started = performance.now();
    // A replica that has been replaced meanwhile does not matter.
    const replica = this.#replica;
    try {
      const row = await this.#sendBatch(batch);
      this.#writeHealth.succeeded();
      const tail = decodeTail(row);
      // The result is ignored, because the writes are done and the next read refreshes again.
      follow(replica, tail);
      batch.stored(row, tail);
      onBatch(batch.size, performance.now() - started);
      if (row.evicted > 0n) onIdempotencyKeysEvicted(Number(row.evicted));
    } catch (cause) {
      const failure = storeUnavailable(cause);
      this.#writeHealth.failed();
      // The waiting writes would only time out as well.
      if (failure.cause instanceof TimeoutError) this.#queue.failWaiting(failure);
      throw failure;
    }
  }

  #sendBatch(batch: Batch): Promise<WriteRow> {
    const { maxTodos, maxEvents } = this.#options;
    const values = [maxTodos, Math.max(maxEvents, MIN_EVENTS), ...batch.values];
    return this.#queryAtPosition<WriteRow>(WRITE, values);
  }
}

const NO_STORE_ROW = "the table todo_service.store is empty: restore the database from a backup";
/** Fails on a standby, because pg_current_wal_lsn does. The driver may have reconnected to one by itself. */
const TAIL = "SELECT * FROM todo_service.tail($1, $2) WHERE pg_current_wal_lsn() IS NOT NULL";
/** Returns what tail returns, with as many of the latest events as requested. */
const LATEST = "SELECT t.* FROM todo_service.totals() s, todo_service.tail(s.epoch, s.sequence - $1) t";
const WRITE = "SELECT * FROM todo_service.write($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)";

/** Loads a snapshot of all to-dos and the stored changes. */
function load(primary: Primary, options: typeof POSTGRES_DEFAULTS): Promise<TodoState> {
  return primary.run((sql, progress) =>
    sql.begin("ISOLATION LEVEL REPEATABLE READ READ ONLY", async (snapshot) => {
      const [row] = await snapshot.unsafe<TailRow[]>(LATEST, [options.maxEvents]);
      if (row === undefined) throw new Error(NO_STORE_ROW);
      const { position, events } = decodeTail(row);
      const limits = { ...options, maxId: MAX_POSTGRES_ID, onRemoved: () => {} };
      return new TodoState(limits, { position, events, table: await loadTable(snapshot, progress) });
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
