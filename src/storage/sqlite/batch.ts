import type { ServiceError } from "../../error.ts";
import type { Position, TodoId } from "../../todo.ts";
import { encodeEvent, type StoredEvent } from "../records/event-codec.ts";
import type { IdempotencyRecord } from "../records/idempotency.ts";
import type { Table } from "../table/table.ts";
import type { Commit } from "./writer.worker.ts";

/** The combined effect of a sequence of writes. */
export class Batch {
  readonly events: StoredEvent[] = [];
  /** By the digest of their key. */
  readonly receipts = new Map<string, IdempotencyRecord>();
  readonly #start: Position;
  readonly #startId: TodoId;
  #lastId: TodoId;
  #count: number;
  /** The created to-dos, with ids from `#startId` + 1. */
  readonly #created: string[] = [];
  /** The other changed to-dos; `undefined` for deleted ones. */
  readonly #changed = new Map<TodoId, { readonly json: string; readonly done: boolean } | undefined>();

  /** @param count the number of to-dos before the batch */
  constructor(start: Position, lastId: TodoId, count: number) {
    this.#start = start;
    this.#startId = lastId;
    this.#lastId = lastId;
    this.#count = count;
  }

  get lastId(): TodoId {
    return this.#lastId;
  }

  /** The number of to-dos after the batch. */
  get count(): number {
    return this.#count;
  }

  /** Returns the pending state of a to-do; `undefined` if the batch has not changed it. */
  pending(id: TodoId): { readonly json: string | undefined } | undefined {
    if (this.#changed.has(id)) return { json: this.#changed.get(id)?.json };
    return id > this.#startId && id <= this.#lastId
      ? { json: this.#created[Number(id - this.#startId) - 1] }
      : undefined;
  }

  /** Creates a to-do with the next id. */
  create(json: string): void {
    this.#lastId++;
    this.#count++;
    this.#created.push(json);
    this.events.push({ type: "created", position: this.#nextPosition(), id: this.#lastId, json });
  }

  update(id: TodoId, json: string, done: boolean): void {
    this.#changed.set(id, { json, done });
    this.events.push({ type: "updated", position: this.#nextPosition(), id, json });
  }

  delete(id: TodoId): void {
    this.#count--;
    this.#changed.set(id, undefined);
    this.events.push({ type: "deleted", position: this.#nextPosition(), id });
  }

  /** Applies the batch to a table in the state before the batch. */
  applyTo(table: Table): void {
    let id = this.#startId;
    for (const json of this.#created) table.append(++id, json);
    for (const [changedId, todo] of this.#changed) {
      if (todo === undefined) table.delete(changedId);
      else table.setDone(changedId, todo.done);
    }
  }

  /**
   * Returns what the writer stores; `undefined` if nothing changes.
   * @param evicted the hashes of idempotency keys to delete
   */
  commit(evicted: readonly string[]): Commit | undefined {
    if (this.events.length === 0) return undefined;
    return {
      lastId: this.#lastId,
      startN: this.#start.sequence,
      lastN: this.#start.sequence + this.events.length,
      events: this.events.map(encodeEvent).join("\n"),
      changed: [...this.#changed].map(([id, todo]) => [id, todo?.done]),
      evicted,
      receipts: [...this.receipts.values()],
    };
  }

  #nextPosition(): Position {
    return { epoch: this.#start.epoch, sequence: this.#start.sequence + this.events.length + 1 };
  }
}

/** A write that waits for its batch. */
export interface PendingWrite {
  apply(batch: Batch): void;
  /** Resolves the write, because the batch is on disk. */
  settle(): void;
  fail(failure: ServiceError): void;
}

export class Write<T> implements PendingWrite {
  readonly answer: Promise<T>;
  readonly #apply: (batch: Batch) => T;
  readonly #waiting = Promise.withResolvers<T>();
  #result: { readonly answer: T } | undefined;

  /** @param apply adds the write to the batch and returns the result; throws a ServiceError */
  constructor(apply: (batch: Batch) => T) {
    this.#apply = apply;
    this.answer = this.#waiting.promise;
  }

  apply(batch: Batch): void {
    try {
      this.#result = { answer: this.#apply(batch) };
    } catch (failure) {
      this.#waiting.reject(failure);
    }
  }

  settle(): void {
    if (this.#result !== undefined) this.#waiting.resolve(this.#result.answer);
  }

  fail(failure: ServiceError): void {
    this.#waiting.reject(failure);
  }
}
