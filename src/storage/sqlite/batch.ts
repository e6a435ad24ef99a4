import { encodeTodo, type Position, type TodoId } from "../../todo.ts";
import { encodeEvent, type StoredEvent } from "../records/event-codec.ts";
import type { IdempotencyRecord } from "../records/idempotency.ts";
import type { Table } from "../table/table.ts";
import type { Commit } from "./writer.worker.ts";

/** The combined effect of a batch on a to-do. */
interface Change {
  /** The to-do before the batch, or when the batch created it. */
  readonly before: string;
  /** The to-do after the batch; `undefined` if it is deleted. */
  readonly after: { readonly json: string; readonly done: boolean } | undefined;
}

/** The combined effect of a sequence of writes. */
export class Batch {
  readonly events: StoredEvent[] = [];
  /** By the SHA-256 of their key. */
  readonly idempotencyRecords = new Map<string, IdempotencyRecord>();
  /** Settles when the batch is on disk, or has failed. */
  readonly outcome = Promise.withResolvers<void>();
  readonly #start: Position;
  readonly #epoch: string;
  readonly #startId: TodoId;
  lastId: TodoId;
  /** The number of to-dos after the batch. */
  count: number;
  /** The created to-dos, with ids from `#startId` + 1. */
  readonly #created: string[] = [];
  /** The other changed to-dos. */
  readonly #changed = new Map<TodoId, Change>();

  /**
   * @param epoch the epoch of the changes
   * @param count the number of to-dos before the batch
   */
  constructor(start: Position, epoch: string, lastId: TodoId, count: number) {
    this.#start = start;
    this.#epoch = epoch;
    this.#startId = lastId;
    this.lastId = lastId;
    this.count = count;
  }

  /** The position after the writes so far. */
  get position(): Position {
    return this.events.at(-1)?.position ?? this.#start;
  }

  /** Returns the pending state of a to-do; `undefined` if it is older than the batch and not changed. */
  pending(id: TodoId): { readonly json: string | undefined } | undefined {
    const change = this.#changed.get(id);
    if (change !== undefined) return { json: change.after?.json };
    return id > this.#startId ? { json: this.#created[Number(id - this.#startId) - 1] } : undefined;
  }

  /** Creates a to-do with the next id. */
  create(title: string): { id: TodoId; json: string } {
    const id = ++this.lastId;
    const json = encodeTodo({ id, title, done: false });
    this.count++;
    this.#created.push(json);
    this.events.push({ type: "created", position: this.#nextPosition(), id, json });
    return { id, json };
  }

  /** @param before the to-do after the earlier writes of the batch */
  update(id: TodoId, before: string, json: string, done: boolean): void {
    this.#change(id, before, { json, done });
    this.events.push({ type: "updated", position: this.#nextPosition(), id, json });
  }

  /** @param before the to-do after the earlier writes of the batch */
  delete(id: TodoId, before: string): void {
    this.count--;
    this.#change(id, before, undefined);
    this.events.push({ type: "deleted", position: this.#nextPosition(), id });
  }

  /** Applies the batch to a table in the state before the batch. */
  applyTo(table: Table): void {
    let id = this.#startId;
    for (const json of this.#created) table.append(++id, json);
    for (const [changedId, { after }] of this.#changed) {
      if (after === undefined) table.delete(changedId);
      else table.setDone(changedId, after.done);
    }
  }

  /**
   * Returns what the writer stores; `undefined` if nothing changes.
   * @param evicted the hashes of idempotency keys to delete
   */
  commit(evicted: readonly string[]): Commit | undefined {
    if (this.events.length === 0) return undefined;
    return {
      startId: this.#startId,
      lastId: this.lastId,
      epoch: this.#epoch,
      startSequence: this.#start.sequence,
      lastSequence: this.#start.sequence + this.events.length,
      events: this.events.map(encodeEvent).join("\n"),
      changed: [...this.#changed].map(([id, { before, after }]) => [id, after?.json, before]),
      evicted,
      idempotencyRecords: [...this.idempotencyRecords.values()],
    };
  }

  #change(id: TodoId, before: string, after: Change["after"]): void {
    this.#changed.set(id, { before: this.#changed.get(id)?.before ?? before, after });
  }

  #nextPosition(): Position {
    return { epoch: this.#epoch, sequence: this.#start.sequence + this.events.length + 1 };
  }
}
