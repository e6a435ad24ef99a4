import type { SQL } from "bun";
import { Feed } from "../../event.ts";
import { Failure } from "../../failure.ts";
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
import { digest } from "../receipt.ts";
import { DEFAULTS, noRoom, type Store, type StoreOptions } from "../store.ts";
import { Table } from "../table.ts";
import { Batch, type Outcome, type Outcomes, type Write } from "./batch.ts";
import { PostgresKeys } from "./keys.ts";
import { Primary, type Value } from "./primary.ts";
import { Replica, type Tail } from "./replica.ts";
import { migrate } from "./schema.ts";

/** PostgreSQL's integers are signed. */
const MAX_POSTGRES_ID: TodoId = 2n ** 63n - 1n;
const LOOK_EVERY_MS = 1000;
const ROWS_AT_ONCE = 10_000;

export interface PostgresOptions extends StoreOptions {
  /** How many connections to the database at most, besides the one that listens. */
  readonly connections?: number;
}

/**
 * Opens a database, whose schema `todo_service` is made if it is not there; throws an Error that says why it cannot
 * be used. Any number of processes may use it at once, each of them with all to-dos in memory: a read first asks
 * the database for what is new, and so sees every write that was acknowledged, by whichever process.
 */
export async function openPostgres(url: string, given: PostgresOptions = {}): Promise<Store> {
  const options = { ...DEFAULTS, connections: 4, ...given };
  const store = new PostgresStore(url, options);
  try {
    await store.open();
    return store;
  } catch (error) {
    await store.close();
    throw error instanceof Failure ? error.cause : error;
  }
}

class PostgresStore implements Store {
  readonly keys: PostgresKeys;
  readonly #primary: Primary;
  readonly #options: typeof DEFAULTS;
  #replica: Replica | undefined;
  #loading: Promise<Replica> | undefined;
  #waiting: Write[] = [];
  #writing: Promise<void> | undefined;
  /** The look at the database that reads may still join, and the one under way. */
  #nextLook: Promise<Replica> | undefined;
  #look: Promise<unknown> = Promise.resolve();
  readonly #timer: NodeJS.Timeout;

  constructor(url: string, options: typeof DEFAULTS & { readonly connections: number }) {
    const look = () => {
      // Whoever asks next is told of the failure.
      this.#latest().catch(() => {});
    };
    this.#primary = new Primary(url, { connections: options.connections, onNotify: look });
    this.#options = options;
    this.keys = new PostgresKeys(this.#primary);
    this.#timer = setInterval(look, LOOK_EVERY_MS).unref();
  }

  async open(): Promise<void> {
    await this.#primary.run(migrate);
    await this.#load();
  }

  async insert(title: string, idempotencyKey?: string): Promise<{ id: TodoId; json: TodoJson }> {
    const outcome = await this.#write({
      type: "insert",
      title,
      keyHash: idempotencyKey === undefined ? "" : digest(idempotencyKey),
      titleHash: idempotencyKey === undefined ? "" : digest(title),
    });
    if (outcome.type === "full") throw noRoom(this.#options.maxTodos);
    if (outcome.type === "reused") {
      throw new Failure("idempotency_key_reused", { detail: "Send each to-do under a key of its own." });
    }
    if (outcome.type !== "made") throw new Error(`an insert that was ${outcome.type}`);
    return { id: outcome.id, json: encodeTodo({ id: outcome.id, title, done: false }) };
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
    const { position, feed } = await this.#latest();
    if (after.epoch === position.epoch) yield* feed.after(after.n, signal);
  }

  async close(): Promise<void> {
    clearInterval(this.#timer);
    while (this.#writing !== undefined) await this.#writing;
    await this.keys.close();
    this.#replica?.feed.end();
    await this.#primary.close();
  }

  /** The replica, with everything that was acknowledged before this call. */
  #latest(): Promise<Replica> {
    this.#nextLook ??= this.#lookAfter(this.#look);
    return this.#nextLook;
  }

  /** Reads that arrive while a look is under way share the next one: theirs must begin after they came. */
  async #lookAfter(last: Promise<unknown>): Promise<Replica> {
    await last;
    await new Promise(setImmediate);
    this.#nextLook = undefined;
    const look = this.#follow("SELECT * FROM todo_service.tail($1)", []);
    this.#look = look.catch(() => {});
    return (await look).replica;
  }

  /** Sends a query whose first parameter is the replica's position, and goes on to where its answer has come. */
  async #follow<Row extends Tail>(
    query: string,
    values: readonly Value[],
  ): Promise<{ replica: Replica; row: Row }> {
    const replica = this.#replica ?? (await this.#load());
    const [row] = await this.#primary.query<Row>(query, [replica.position.n, ...values]);
    if (row === undefined) throw new Error("the database has no store");
    return { replica: this.#replica?.follow(row) === true ? this.#replica : await this.#load(), row };
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
      try {
        const { maxTodos, maxEvents, now } = this.#options;
        const { row } = await this.#follow<Tail & Outcomes>(WRITE, [
          maxTodos,
          maxEvents,
          now(),
          ...batch.values,
        ]);
        batch.settle(row);
      } catch (error) {
        batch.fail(error instanceof Failure ? error : new Failure("store_unavailable", { cause: error }));
      }
    }
    this.#writing = undefined;
  }

  /** Reads everything anew. */
  #load(): Promise<Replica> {
    this.#loading ??= this.#primary
      .run((sql) => load(sql, this.#options.maxEvents))
      .then((replica) => {
        this.#replica?.feed.end();
        this.#replica = replica;
        return replica;
      })
      .catch((cause) => {
        throw new Failure("store_unavailable", { cause });
      })
      .finally(() => {
        this.#loading = undefined;
      });
    return this.#loading;
  }
}

type Unanswered<W> = W extends unknown ? Omit<W, "settle" | "fail"> : never;

const WRITE = "SELECT * FROM todo_service.write($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)";

/** All to-dos and the changes kept, of one moment. */
async function load(sql: SQL, maxEvents: number): Promise<Replica> {
  return sql.begin("ISOLATION LEVEL REPEATABLE READ READ ONLY", async (snapshot) => {
    const [store] = await snapshot.unsafe<{ n: bigint }[]>("SELECT n FROM todo_service.store");
    if (store === undefined) throw new Error("the database has no row in todo_service.store");
    const n = Number(store.n);
    const [row] = await snapshot.unsafe<Tail[]>("SELECT * FROM todo_service.tail($1)", [n - maxEvents]);
    const epoch = row?.epoch ?? "";
    const events = row?.tail ? decodeEvents(row.tail, { epoch, n }) : [];
    const feed = new Feed(maxEvents, n - events.length);
    for (const event of events) feed.publish(event);
    return new Replica(await loadTable(snapshot), feed, { epoch, n });
  });
}

async function loadTable(sql: SQL): Promise<Table> {
  const table = new Table();
  let last = 0n;
  for (;;) {
    const rows = await sql.unsafe<{ id: bigint; json: string }[]>(
      `SELECT id, todo_service.todo_json(id, title, done) AS json FROM todo_service.todos
       WHERE id > $1 ORDER BY id LIMIT ${ROWS_AT_ONCE}`,
      [last],
    );
    for (const { id, json } of rows) table.append(id, json);
    last = rows.at(-1)?.id ?? last;
    if (rows.length < ROWS_AT_ONCE) return table;
  }
}
