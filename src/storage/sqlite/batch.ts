import { isDone, type Position, type TodoEvent, type TodoId, todoText, withDone } from "../../todo.ts";
import type { IdempotencyRecord } from "../records/idempotency.ts";
import type { TodoState } from "../state.ts";
import type { Writable } from "../writes.ts";

/** Changes that are not on disk yet, on top of a state that does not change until they are. */
export class Batch implements Writable {
  readonly events: TodoEvent[] = [];
  readonly #state: TodoState;
  readonly #epoch: string;
  /** The created to-dos, in the order of their ids. */
  readonly #created: string[] = [];
  /** The to-dos that were changed; `undefined` if they were deleted. */
  readonly #changed = new Map<TodoId, string | undefined>();
  /** By the SHA-256 of their key. */
  readonly #records = new Map<string, IdempotencyRecord>();
  #count: number;
  #lastId: TodoId;

  /** @param epoch the epoch of the changes */
  constructor(state: TodoState, epoch: string) {
    this.#state = state;
    this.#epoch = epoch;
    this.#count = state.count;
    this.#lastId = state.lastId;
  }

  get limits() {
    return this.#state.limits;
  }

  get count(): number {
    return this.#count;
  }

  get lastId(): TodoId {
    return this.#lastId;
  }

  get position(): Position {
    return this.events.at(-1)?.position ?? this.#state.position;
  }

  get nextPosition(): Position {
    return { epoch: this.#epoch, sequence: this.position.sequence + 1 };
  }

  get idempotencyRecords(): readonly IdempotencyRecord[] {
    return [...this.#records.values()];
  }

  get(id: TodoId): string | undefined {
    if (this.#changed.has(id)) return this.#changed.get(id);
    const { lastId } = this.#state;
    if (id > lastId) return this.#created[Number(id - lastId) - 1];
    const json = this.#state.get(id);
    return json && todoText(json);
  }

  isDone(id: TodoId): boolean | undefined {
    const json = this.get(id);
    return json === undefined ? undefined : isDone(json);
  }

  setDone(id: TodoId, done: boolean): string {
    const json = withDone(this.get(id) ?? "", done);
    this.apply({ type: "updated", position: this.nextPosition, id, json });
    return json;
  }

  findRecord(keyHash: string): IdempotencyRecord | undefined {
    return this.#records.get(keyHash) ?? this.#state.findRecord(keyHash);
  }

  apply(event: TodoEvent): void {
    this.events.push(event);
    if (event.type === "created") {
      this.#created.push(event.json);
      this.#lastId = event.id;
      this.#count++;
    } else if (event.type === "updated") {
      this.#changed.set(event.id, todoText(event.json));
    } else {
      this.#changed.set(event.id, undefined);
      this.#count--;
    }
  }

  remember(record: IdempotencyRecord): void {
    this.#records.set(record.keyHash, record);
  }

  /** Changes the state, once the batch is on disk. */
  applyToState(): void {
    for (const event of this.events) this.#state.apply(event);
    for (const record of this.#records.values()) this.#state.remember(record);
  }
}
