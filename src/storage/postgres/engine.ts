import type { SQL } from "bun";
import { Feed } from "../../event.ts";
import {
  encodeTodo,
  type ListQuery,
  type Position,
  type TodoEvent,
  type TodoId,
  type TodoJson,
  type TodoList,
} from "../../todo.ts";
import { decodeEvents } from "../event-line.ts";
import { digest, keyReused, noRoomForKey } from "../receipt.ts";
import { DEFAULTS, noMoreIds, noRoom, type Store, type StoreOptions } from "../store.ts";
import { Table } from "../table.ts";
import { Batch, type Outcome, type Outcomes, type Write } from "./batch.ts";
import { PostgresKeys } from "./keys.ts";
import {
  LateError,
  openPrimary,
  PRIMARY_DEFAULTS,
  type Primary,
  type PrimaryOptions,
  unavailable,
  type Value,
  within,
} from "./primary.ts";
import { Replica, type Tail } from "./replica.ts";

/** PostgreSQL's integers are signed. */
const MAX_POSTGRES_ID: TodoId = 2n ** 63n - 1n;
/** So often a look is taken by itself: nobody may read, and a notification may be lost. */
const LOOK_EVERY_MS = 1000;
/** So long after a notification one is taken, for all that come meanwhile. */
const LOOK_AFTER_MS = 5;
/** So many events are kept at least: a replica that is further behind has to read everything anew. */
const LEAST_EVENTS = 100_000;
const ROWS_AT_ONCE = 10_000;

export interface PostgresOptions extends StoreOptions, Partial<PrimaryOptions> {}

const POSTGRES_DEFAULTS = { ...DEFAULTS, ...PRIMARY_DEFAULTS };

/**
 * Opens a database, whose schema `todo_service` is made if it is not there; throws an Error that says why it cannot
 * be used. Any number of processes may use it at once, each of them with all to-dos in memory: a read first asks
 * the database for what is new, and so sees every write that was acknowledged, by whichever process.
 */
export async function openPostgres(url: string, given: PostgresOptions = {}): Promise<Store> {
  const options = { ...POSTGRES_DEFAULTS, ...given };
  return openPrimary(
    url,
    options,
    async (primary) => new PostgresStore(primary, await load(primary, options.maxEvents), options),
  );
}

class PostgresStore implements Store {
  readonly keys: PostgresKeys;
  readonly #primary: Primary;
  readonly #options: typeof POSTGRES_DEFAULTS;
  #replica: Replica;
  #waiting: Write[] = [];
  #writing: Promise<void> | undefined;
  /** The look at the database that reads may still join, and the one under way. */
  #nextLook: Promise<void> | undefined;
  #look: Promise<void> = Promise.resolve();
  readonly #timer: NodeJS.Timeout;
  /** Runs from a notification to the look that it leads to. */
  #notified: NodeJS.Timeout | undefined;

  constructor(primary: Primary, replica: Replica, options: typeof POSTGRES_DEFAULTS) {
    this.keys = new PostgresKeys(primary);
    this.#primary = primary;
    this.#replica = replica;
    this.#options = options;
    this.#timer = setInterval(() => {
      if (this.#replica.feed.isRead) this.#listen();
      else primary.unlisten();
      this.#lookAround();
    }, LOOK_EVERY_MS).unref();
  }

  get count(): number {
    return this.#replica.table.count;
  }

  async insert(title: string, idempotencyKey?: string): Promise<{ id: TodoId; json: TodoJson }> {
    const outcome = await this.#write({
      type: "insert",
      title,
      keyHash: idempotencyKey === undefined ? "" : digest(idempotencyKey),
      titleHash: idempotencyKey === undefined ? "" : digest(title),
    });
    switch (outcome.type) {
      case "made":
        return { id: outcome.id, json: encodeTodo({ id: outcome.id, title, done: false }) };
      case "reused":
        throw keyReused();
      case "no room for key":
        throw noRoomForKey(this.#options.maxTodos);
      case "no room":
        throw noRoom(this.#options.maxTodos);
      case "no id":
        throw noMoreIds();
      default:
        throw new Error(`an insert that was ${outcome.type}`);
    }
  }

  async get(id: TodoId): Promise<TodoJson | undefined> {
    return (await this.#latest()).table.get(id);
  }

  async list(query: ListQuery): Promise<TodoList> {
    const { position, table } = await this.#latest();
    return { position, ...table.list(query) };
  }

  async setDone(id: TodoId, done: boolean): Promise<TodoJson | undefined> {
    if (id > MAX_POSTGRES_ID) return undefined;
    const outcome = await this.#write({ type: "update", id, done });
    return outcome.type === "updated" ? outcome.json : undefined;
  }

  async delete(id: TodoId): Promise<boolean> {
    if (id > MAX_POSTGRES_ID) return false;
    return (await this.#write({ type: "delete", id })).type === "deleted";
  }

  async position(): Promise<Position> {
    return (await this.#latest()).position;
  }

  async *events(after: Position, signal: AbortSignal): AsyncGenerator<TodoEvent, void, undefined> {
    this.#listen();
    const { position, feed } = await this.#latest();
    if (after.epoch === position.epoch) yield* feed.after(after.n, signal);
  }

  async close(): Promise<void> {
    clearInterval(this.#timer);
    clearTimeout(this.#notified);
    while (this.#writing !== undefined) await this.#writing;
    await this.keys.close();
    this.#replica.feed.end();
    await this.#primary.close();
  }

  /** The replica, with everything that was acknowledged before this call. */
  async #latest(): Promise<Replica> {
    this.#nextLook ??= within(this.#options.answerWithinMs, () => this.#lookAfter(this.#look));
    try {
      await this.#nextLook;
    } catch (cause) {
      throw unavailable(cause);
    }
    return this.#replica;
  }

  /** Reads that arrive while a look is under way share the next one: theirs must begin after they came. */
  async #lookAfter(last: Promise<void>): Promise<void> {
    await last;
    await new Promise(setImmediate);
    this.#nextLook = undefined;
    const look = this.#lookNow();
    this.#look = look.catch(() => {});
    await look;
  }

  /** Looks soon after each notification: only those who read events need it. */
  #listen(): void {
    this.#primary.listen((n = Number.POSITIVE_INFINITY) => {
      if (n <= this.#replica.position.n) return;
      this.#notified ??= setTimeout(() => {
        this.#notified = undefined;
        this.#lookAround();
      }, LOOK_AFTER_MS);
    });
  }

  /** Looks for nobody in particular: whoever asks next is told of a failure. */
  #lookAround(): void {
    this.#latest().catch(() => {});
  }

  /** Goes on to where the database is, or reads everything anew when that cannot be reached from here. */
  async #lookNow(): Promise<void> {
    const tail = await this.#ask<Tail>("SELECT * FROM todo_service.tail($1)");
    if (this.#replica.follow(tail)) return;
    const replica = await load(this.#primary, this.#options.maxEvents);
    this.#replica.feed.end();
    this.#replica = replica;
  }

  /** Sends a query whose first parameter is the replica's position. */
  async #ask<Row>(query: string, values: readonly Value[] = []): Promise<Row> {
    const [row] = await this.#primary.query<Row>(query, [this.#replica.position.n, ...values]);
    if (row === undefined) throw new Error(NO_STORE);
    return row;
  }

  #write(change: Unanswered<Write>): Promise<Outcome> {
    const { promise, resolve: settle, reject: fail } = Promise.withResolvers<Outcome>();
    this.#waiting.push({ ...change, settle, fail });
    this.#writing ??= this.#writeBatches();
    return promise;
  }

  /** Writes batch after batch while any write waits. */
  async #writeBatches(): Promise<void> {
    while (this.#waiting.length > 0) {
      // One turn of the event loop for what was sent meanwhile, one for what the last answers led to.
      await new Promise(setImmediate);
      await new Promise(setImmediate);
      const batch = new Batch();
      this.#waiting = this.#waiting.filter((write) => !batch.take(write));
      await this.#writeBatch(batch);
    }
    this.#writing = undefined;
  }

  async #writeBatch(batch: Batch): Promise<void> {
    const { maxTodos, maxEvents, now, onBatch } = this.#options;
    const started = performance.now();
    try {
      const row = await this.#ask<Tail & Outcomes>(WRITE, [
        maxTodos,
        Math.max(maxEvents, LEAST_EVENTS),
        now(),
        ...batch.values,
      ]);
      onBatch(batch.size, performance.now() - started);
      // Whether it can or not: what was asked is done, and the next read will find out.
      this.#replica.follow(row);
      batch.settle(row);
    } catch (cause) {
      const failure = unavailable(cause);
      batch.fail(failure);
      if (!(failure.cause instanceof LateError)) return;
      // Those behind it would wait as long again.
      for (const { fail } of this.#waiting) fail(failure);
      this.#waiting = [];
    }
  }
}

type Unanswered<W> = W extends unknown ? Omit<W, "settle" | "fail"> : never;

const NO_STORE = "the database has no row in todo_service.store";
const WRITE = "SELECT * FROM todo_service.write($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)";

/** All to-dos and the changes kept, of one moment. */
function load(primary: Primary, maxEvents: number): Promise<Replica> {
  return primary.run((sql, progress) =>
    sql.begin("ISOLATION LEVEL REPEATABLE READ READ ONLY", async (snapshot) => {
      const [tail] = await snapshot.unsafe<Tail[]>(
        "SELECT t.* FROM todo_service.store s, todo_service.tail(s.n - $1) t",
        [maxEvents],
      );
      if (tail === undefined) throw new Error(NO_STORE);
      const position = { epoch: tail.epoch, n: Number(tail.n) };
      const events = tail.tail === null ? [] : decodeEvents(tail.tail, position);
      const feed = new Feed(maxEvents, position.n - events.length);
      for (const event of events) feed.publish(event);
      return new Replica(await loadTable(snapshot, progress), feed, position);
    }),
  );
}

async function loadTable(sql: SQL, progress: () => void): Promise<Table> {
  const table = new Table();
  let last = 0n;
  for (;;) {
    const rows = await sql.unsafe<{ id: bigint; json: string }[]>(
      `SELECT id, todo_service.todo_json(id, title, done) AS json FROM todo_service.todos
       WHERE id > $1 ORDER BY id LIMIT ${ROWS_AT_ONCE}`,
      [last],
    );
    progress();
    for (const { id, json } of rows) table.append(id, json);
    last = rows.at(-1)?.id ?? last;
    if (rows.length < ROWS_AT_ONCE) return table;
  }
}
