import { randomBytes } from "node:crypto";
import { Feed } from "../event.ts";
import { Failure } from "../failure.ts";
import {
  encodeTodo,
  type ListQuery,
  MAX_TODO_ID,
  type Position,
  type TodoEvent,
  type TodoId,
  type TodoJson,
  type TodoList,
  type TodoStore,
} from "../todo.ts";
import { Table } from "./table.ts";

export interface MemoryOptions {
  /** How many to-dos it holds at most; beyond, an insert fails with `store_full`. */
  readonly maxTodos?: number;
  /** How many changes it keeps for `events`. */
  readonly maxEvents?: number;
  /** The id before the first one. */
  readonly lastId?: TodoId;
}

/** Opens an empty store that lives as long as the process. */
export function openMemory(options: MemoryOptions = {}): TodoStore {
  return new MemoryStore(options);
}

class MemoryStore implements TodoStore {
  readonly #epoch = randomBytes(8).toString("hex");
  readonly #maxTodos: number;
  readonly #feed: Feed;
  readonly #table = new Table();
  #lastId: TodoId;
  #n = 0;

  constructor({ maxTodos = 1_000_000, maxEvents = 1_000, lastId = 0n }: MemoryOptions) {
    this.#maxTodos = maxTodos;
    this.#feed = new Feed(maxEvents, this.#n);
    this.#lastId = lastId;
  }

  insert(title: string): { id: TodoId; json: TodoJson } {
    if (this.#table.count >= this.#maxTodos) {
      throw new Failure("store_full", { detail: `It holds its ${this.#maxTodos} to-dos: delete one first.` });
    }
    if (this.#lastId >= MAX_TODO_ID) {
      throw new Failure("store_full", { detail: "The last id there is has been given out." });
    }
    const id = this.#lastId + 1n;
    const json = encodeTodo({ id, title, done: false });
    this.#table.append(id, json);
    this.#lastId = id;
    this.#publish({ type: "created", position: this.#nextPosition(), id, json });
    return { id, json };
  }

  get(id: TodoId): TodoJson | undefined {
    return this.#table.get(id);
  }

  list(query: ListQuery): TodoList {
    return { position: this.position(), ...this.#table.list(query) };
  }

  setDone(id: TodoId, done: boolean): TodoJson | undefined {
    const todo = this.#table.setDone(id, done);
    if (todo?.changed)
      this.#publish({ type: "updated", position: this.#nextPosition(), id, json: todo.json });
    return todo?.json;
  }

  delete(id: TodoId): boolean {
    const existed = this.#table.delete(id);
    if (existed) this.#publish({ type: "deleted", position: this.#nextPosition(), id });
    return existed;
  }

  position(): Position {
    return { epoch: this.#epoch, n: this.#n };
  }

  async *events(after: Position, signal: AbortSignal): AsyncGenerator<TodoEvent, void, undefined> {
    if (after.epoch === this.#epoch) yield* this.#feed.after(after.n, signal);
  }

  close(): void {}

  #nextPosition(): Position {
    return { epoch: this.#epoch, n: this.#n + 1 };
  }

  #publish(event: TodoEvent): void {
    this.#n = event.position.n;
    this.#feed.publish(event);
  }
}
