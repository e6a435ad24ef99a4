import type { Database } from "bun:sqlite";
import type { Feed } from "../event.ts";
import { Failure } from "../failure.ts";
import {
  encodeTodo,
  type ListQuery,
  type Position,
  type TodoEvent,
  type TodoId,
  type TodoJson,
  type TodoList,
  type TodoStore,
} from "../todo.ts";
import { load, type State, takeLock } from "./sqlite-file.ts";
import type { Change, WriterReply, WriterRequest } from "./sqlite-writer.ts";
import type { Table } from "./table.ts";

export interface SqliteOptions {
  /** How many to-dos it holds at most; beyond, an insert fails with `store_full`. */
  readonly maxTodos?: number;
  /** How many changes it keeps for `events`. */
  readonly maxEvents?: number;
}

/** SQLite's integers are signed. */
const MAX_SQLITE_ID: TodoId = 2n ** 63n - 1n;

/**
 * Opens a file, made if it is not there; throws an Error that says why it cannot be used. Everything acknowledged
 * is on disk (WAL, `synchronous=FULL`); reads come from memory, so that no reader waits for the disk.
 */
export async function openSqlite(path: string, options: SqliteOptions = {}): Promise<TodoStore> {
  const { maxTodos = 1_000_000, maxEvents = 1_000 } = options;
  const lock = takeLock(path);
  try {
    const state = load(path, maxEvents);
    return new SqliteStore(state, await startWriter(path, maxEvents), lock, maxTodos);
  } catch (cause) {
    lock.close();
    throw new Error(`${path}: ${cause instanceof Error ? cause.message : cause}`, { cause });
  }
}

/** A write that waits for its batch. */
interface Write {
  /** Works out what it changes, after the writes before it in the batch: nothing, if `undefined`. Throws a Failure. */
  readonly plan: (batch: Batch) => Change | undefined;
  /** Answers whoever waits, from the table as the write leaves it. */
  readonly settle: (change: Change | undefined) => void;
  readonly reject: (failure: unknown) => void;
}

/** What the writes of a batch so far come to, beyond what the table holds. */
interface Batch {
  lastId: TodoId;
  count: number;
  /** The `done` of the to-dos changed in this batch; `undefined` for those deleted. */
  readonly done: Map<TodoId, boolean | undefined>;
}

/**
 * Writes that arrive together share one transaction and one fsync, in a thread of their own. What a batch
 * comes to is worked out here, from the table; the table itself changes once the batch is on disk.
 */
class SqliteStore implements TodoStore {
  readonly #epoch: string;
  readonly #table: Table;
  readonly #feed: Feed;
  readonly #writer: Writer;
  readonly #lock: Database;
  readonly #maxTodos: number;
  #lastId: TodoId;
  #n: number;
  #waiting: Write[] = [];
  #writing: Promise<void> | undefined;

  constructor(state: State, writer: Writer, lock: Database, maxTodos: number) {
    this.#epoch = state.epoch;
    this.#table = state.table;
    this.#feed = state.feed;
    this.#lastId = state.lastId;
    this.#n = state.n;
    this.#writer = writer;
    this.#lock = lock;
    this.#maxTodos = maxTodos;
  }

  insert(title: string): Promise<{ id: TodoId; json: TodoJson }> {
    return this.#write(
      (batch): Change => {
        if (batch.count >= this.#maxTodos) {
          throw new Failure("store_full", {
            detail: `It holds its ${this.#maxTodos} to-dos: delete one first.`,
          });
        }
        if (batch.lastId >= MAX_SQLITE_ID) {
          throw new Failure("store_full", { detail: "The last id there is has been given out." });
        }
        const id = batch.lastId + 1n;
        batch.lastId = id;
        batch.count++;
        batch.done.set(id, false);
        return {
          type: "created",
          id,
          title: JSON.stringify(title),
          json: encodeTodo({ id, title, done: false }),
        };
      },
      (change) => {
        if (change?.type !== "created") throw new Error("an insert that made no to-do");
        return { id: change.id, json: change.json };
      },
    );
  }

  get(id: TodoId): TodoJson | undefined {
    return this.#table.get(id);
  }

  list(query: ListQuery): TodoList {
    return { position: this.position(), ...this.#table.list(query) };
  }

  setDone(id: TodoId, done: boolean): Promise<TodoJson | undefined> {
    return this.#write(
      (batch) => {
        const now = this.#doneIn(batch, id);
        if (now === undefined || now === done) return undefined;
        batch.done.set(id, done);
        return { type: "updated", id, done };
      },
      () => this.#table.get(id),
    );
  }

  delete(id: TodoId): Promise<boolean> {
    return this.#write(
      (batch) => {
        if (this.#doneIn(batch, id) === undefined) return undefined;
        batch.done.set(id, undefined);
        batch.count--;
        return { type: "deleted", id };
      },
      (change) => change !== undefined,
    );
  }

  position(): Position {
    return { epoch: this.#epoch, n: this.#n };
  }

  async *events(after: Position, signal: AbortSignal): AsyncGenerator<TodoEvent, void, undefined> {
    if (after.epoch === this.#epoch) yield* this.#feed.after(after.n, signal);
  }

  async close(): Promise<void> {
    while (this.#writing !== undefined) await this.#writing;
    await this.#writer.close();
    this.#lock.close();
  }

  #doneIn(batch: Batch, id: TodoId): boolean | undefined {
    return batch.done.has(id) ? batch.done.get(id) : this.#table.isDone(id);
  }

  #write<T>(plan: Write["plan"], result: (change: Change | undefined) => T): Promise<T> {
    const { promise, resolve, reject } = Promise.withResolvers<T>();
    this.#waiting.push({ plan, settle: (change) => resolve(result(change)), reject });
    this.#writing ??= this.#writeBatches();
    return promise;
  }

  /** Writes batch after batch while any write waits; the first takes in all that arrives in this turn. */
  async #writeBatches(): Promise<void> {
    await new Promise(setImmediate);
    while (this.#waiting.length > 0) {
      const writes = this.#waiting;
      this.#waiting = [];
      await this.#writeBatch(writes);
    }
    this.#writing = undefined;
  }

  async #writeBatch(writes: readonly Write[]): Promise<void> {
    const batch: Batch = { lastId: this.#lastId, count: this.#table.count, done: new Map() };
    const planned: { write: Write; change: Change | undefined }[] = [];
    for (const write of writes) {
      try {
        planned.push({ write, change: write.plan(batch) });
      } catch (failure) {
        write.reject(failure);
      }
    }
    const changes = planned.flatMap(({ change }) => change ?? []);
    try {
      if (changes.length > 0) await this.#writer.commit({ lastId: batch.lastId, n: this.#n, changes });
    } catch (cause) {
      for (const { write } of planned) write.reject(new Failure("store_unavailable", { cause }));
      return;
    }
    this.#lastId = batch.lastId;
    for (const { write, change } of planned) {
      if (change !== undefined) this.#apply(change);
      write.settle(change);
    }
  }

  #apply(change: Change): void {
    this.#n++;
    const { id } = change;
    const position = this.position();
    if (change.type === "created") {
      this.#table.append(id, change.json);
      this.#feed.publish({ type: "created", position, id, json: change.json });
    } else if (change.type === "updated") {
      const todo = this.#table.setDone(id, change.done);
      if (todo === undefined) throw new Error(`no to-do ${id} to update`);
      this.#feed.publish({ type: "updated", position, id, json: todo.json });
    } else {
      this.#table.delete(id);
      this.#feed.publish({ type: "deleted", position, id });
    }
  }
}

/** The thread that writes. */
interface Writer {
  /** Resolves when the batch is on disk; rejects when it is not and will not be. */
  readonly commit: (batch: Omit<WriterRequest & { type: "commit" }, "type">) => Promise<void>;
  readonly close: () => Promise<void>;
}

/** Starts the writer, and again when it has died of something other than a failed batch. */
async function startWriter(path: string, maxEvents: number): Promise<Writer> {
  let thread = await startThread({ type: "open", path, maxEvents });
  return {
    commit: async (batch) => {
      if (thread.isDead()) thread = await startThread({ type: "open", path, maxEvents });
      await thread.ask({ type: "commit", ...batch });
    },
    close: async () => {
      if (!thread.isDead()) await thread.ask({ type: "close" });
      thread.end();
    },
  };
}

async function startThread(open: WriterRequest) {
  const worker = new Worker(new URL("./sqlite-writer.ts", import.meta.url).href);
  let waiting = Promise.withResolvers<void>();
  let dead = false;
  worker.onmessage = ({ data }: MessageEvent<WriterReply>) => {
    if (data.error === undefined) waiting.resolve();
    else waiting.reject(new Error(data.error));
  };
  worker.onerror = ({ message }) => {
    dead = true;
    waiting.reject(new Error(message));
  };
  /** One request at a time. */
  const ask = (request: WriterRequest): Promise<void> => {
    waiting = Promise.withResolvers();
    worker.postMessage(request);
    return waiting.promise;
  };
  await ask(open);
  return { ask, isDead: () => dead, end: () => worker.terminate() };
}
