import type { Failure } from "../../failure.ts";
import type { Position, TodoId } from "../../todo.ts";
import { encodeEvent, type StoredEvent } from "../event-line.ts";
import type { Receipt } from "../receipt.ts";
import type { Table } from "../table.ts";
import type { Commit } from "./writer.ts";

/** What some writes, one after the other, come to. */
export class Batch {
  readonly events: StoredEvent[] = [];
  /** By the digest of their key. */
  readonly receipts = new Map<string, Receipt>();
  readonly #start: Position;
  readonly #startId: TodoId;
  #lastId: TodoId;
  #count: number;
  /** The to-dos it makes, from `#startId` + 1 on. */
  readonly #created: string[] = [];
  /** What else becomes of to-dos; `undefined` for deleted. */
  readonly #changed = new Map<TodoId, { readonly json: string; readonly done: boolean } | undefined>();

  /** @param count how many to-dos there are before it */
  constructor(start: Position, lastId: TodoId, count: number) {
    this.#start = start;
    this.#startId = lastId;
    this.#lastId = lastId;
    this.#count = count;
  }

  get lastId(): TodoId {
    return this.#lastId;
  }

  /** How many to-dos there are after it. */
  get count(): number {
    return this.#count;
  }

  /** A to-do as the batch leaves it so far, if the batch touches it. */
  touched(id: TodoId): { readonly json: string | undefined } | undefined {
    if (this.#changed.has(id)) return { json: this.#changed.get(id)?.json };
    return id > this.#startId && id <= this.#lastId
      ? { json: this.#created[Number(id - this.#startId) - 1] }
      : undefined;
  }

  /** Makes the to-do with the id after the last one. */
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

  /** Does to a table, which is as it was before the batch, what the batch does. */
  applyTo(table: Table): void {
    let id = this.#startId;
    for (const json of this.#created) table.append(++id, json);
    for (const [changedId, todo] of this.#changed) {
      if (todo === undefined) table.delete(changedId);
      else table.setDone(changedId, todo.done);
    }
  }

  /** All of it, as it is written; `undefined` when nothing changes. */
  commit(): Commit | undefined {
    if (this.events.length === 0) return undefined;
    return {
      lastId: this.#lastId,
      startN: this.#start.n,
      lastN: this.#start.n + this.events.length,
      events: this.events.map(encodeEvent).join("\n"),
      changed: [...this.#changed].map(([id, todo]) => [id, todo?.done]),
      receipts: [...this.receipts.values()],
    };
  }

  #nextPosition(): Position {
    return { epoch: this.#start.epoch, n: this.#start.n + this.events.length + 1 };
  }
}

/** A write that waits for its batch. */
export interface Waiting {
  plan(batch: Batch): void;
  /** Answers it: the batch is on disk. */
  settle(): void;
  fail(failure: Failure): void;
}

export class Write<T> implements Waiting {
  readonly answer: Promise<T>;
  readonly #plan: (batch: Batch) => T;
  readonly #waiting = Promise.withResolvers<T>();
  #planned: { readonly answer: T } | undefined;

  /** @param plan works out the answer and what it changes, after the writes before it in the batch; throws a Failure */
  constructor(plan: (batch: Batch) => T) {
    this.#plan = plan;
    this.answer = this.#waiting.promise;
  }

  plan(batch: Batch): void {
    try {
      this.#planned = { answer: this.#plan(batch) };
    } catch (failure) {
      this.#waiting.reject(failure);
    }
  }

  settle(): void {
    if (this.#planned !== undefined) this.#waiting.resolve(this.#planned.answer);
  }

  fail(failure: Failure): void {
    this.#waiting.reject(failure);
  }
}
