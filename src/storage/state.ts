import {
  isDone,
  type ListQuery,
  type Position,
  type TodoEvent,
  type TodoId,
  type TodoJson,
  type TodoList,
  todoText,
} from "../todo.ts";
import { ChangeFeed } from "./change-feed.ts";
import type { ExportContents } from "./ndjson.ts";
import { type IdempotencyRecord, IdempotencyRecords, type RemovedRecords } from "./records/idempotency.ts";
import type { StoreOptions } from "./store.ts";
import { Table } from "./table/table.ts";
import type { Writable, WriteLimits } from "./writes.ts";

export interface StateOptions extends WriteLimits, Pick<Required<StoreOptions>, "maxEvents"> {
  /** Called with the idempotency records that a newer one has removed. */
  readonly onRemoved: (records: RemovedRecords) => void;
}

/** What a state starts with. */
export interface StartContents {
  /** The position of the last change. */
  readonly position: Position;
  /** The greatest id ever assigned. Default: 0. */
  readonly lastId?: TodoId | undefined;
  readonly table?: Table;
  /** The latest changes, up to the position. */
  readonly events?: readonly TodoEvent[];
  /** From the oldest to the youngest. */
  readonly idempotencyRecords?: Iterable<IdempotencyRecord>;
}

/** The state of a store in memory: all to-dos, the latest changes, the idempotency records and the greatest id. */
export class TodoState implements Writable {
  readonly limits: WriteLimits;
  readonly #table: Table;
  /** The latest changes. */
  readonly feed: ChangeFeed;
  readonly #records: IdempotencyRecords;
  readonly #onRemoved: StateOptions["onRemoved"];
  #lastId: TodoId;

  constructor({ maxEvents, onRemoved, ...limits }: StateOptions, start: StartContents) {
    const { position, lastId = 0n, table = new Table(), events = [], idempotencyRecords = [] } = start;
    this.limits = limits;
    this.#table = table;
    this.#lastId = lastId;
    this.#onRemoved = onRemoved;
    const { epoch } = events[0]?.position ?? position;
    this.feed = new ChangeFeed(maxEvents, { epoch, sequence: position.sequence - events.length });
    for (const event of events) this.feed.publish(event);
    this.#records = new IdempotencyRecords(limits.maxTodos, limits.now);
    for (const record of idempotencyRecords) this.#records.load(record);
  }

  get count(): number {
    return this.#table.count;
  }

  get lastId(): TodoId {
    return this.#lastId;
  }

  /** The position of the last change. */
  get position(): Position {
    return this.feed.position;
  }

  get nextPosition(): Position {
    const { epoch, sequence } = this.feed.position;
    return { epoch, sequence: sequence + 1 };
  }

  get(id: TodoId): TodoJson | undefined {
    return this.#table.get(id);
  }

  isDone(id: TodoId): boolean | undefined {
    return this.#table.isDone(id);
  }

  list(query: ListQuery, maxBlobBytes?: number): TodoList {
    return { position: this.position, ...this.#table.list(query, maxBlobBytes) };
  }

  findRecord(keyHash: string): IdempotencyRecord | undefined {
    return this.#records.find(keyHash);
  }

  /** Returns a snapshot of everything. Later changes do not change it. */
  contents(): Omit<ExportContents, "keys"> {
    return {
      lastId: this.#lastId,
      count: this.count,
      todos: this.#table.batches(),
      idempotencyRecords: this.#records.list(),
    };
  }

  /** Applies the next change, and publishes it. */
  apply(event: TodoEvent): void {
    switch (event.type) {
      case "created":
        this.#table.append(event.id, event.json);
        this.#lastId = event.id;
        break;
      case "updated":
        this.#table.setDone(event.id, isDone(todoText(event.json)));
        break;
      case "deleted":
        this.#table.delete(event.id);
        break;
    }
    this.feed.publish(event);
  }

  setDone(id: TodoId, done: boolean): TodoJson {
    this.#table.setDone(id, done);
    const json = this.#table.get(id);
    if (json === undefined) throw new RangeError(`no to-do ${id}`);
    this.feed.publish({ type: "updated", position: this.nextPosition, id, json });
    return json;
  }

  remember(record: IdempotencyRecord): void {
    this.#onRemoved(this.#records.add(record));
  }
}

/** The reads of a store that answers them from its state. */
export abstract class LocalStore {
  protected abstract readonly state: TodoState;

  get count(): number {
    return this.state.count;
  }

  get eventLag(): number {
    return this.state.feed.lag;
  }

  get(id: TodoId): TodoJson | undefined {
    return this.state.get(id);
  }

  list(query: ListQuery, maxBlobBytes?: number): TodoList {
    return this.state.list(query, maxBlobBytes);
  }

  position(): Position {
    return this.state.position;
  }

  events(after: Position, signal: AbortSignal): AsyncGenerator<readonly TodoEvent[], void, undefined> {
    return this.state.feed.after(after, signal);
  }
}
