import type { ServiceError } from "../../error.ts";
import { encodeTodo, type Position, type TodoId, type Written } from "../../todo.ts";
import { idempotencyKeyReused } from "../records/idempotency.ts";
import { idsExhausted, storeFull } from "../store.ts";
import type { Value } from "./primary.ts";
import type { Tail } from "./replica.ts";

const MAX_WRITES = 1000;

/** The errors of the codes that `todo_service.write` returns in place of an id. */
const INSERT_ERRORS = new Map<string, (maxTodos: number) => ServiceError>([
  ["-1", idempotencyKeyReused],
  ["-2", storeFull],
  ["-3", idsExhausted],
]);

/** What `todo_service.write` returns: one line per write of each type. */
export interface Outcomes {
  readonly created: string | null;
  readonly updated: string | null;
  readonly deleted: string | null;
}

interface Insert {
  readonly title: string;
  /** SHA-256 of the idempotency key and of the title; empty without such a key. */
  readonly keyHash: string;
  readonly titleHash: string;
}

interface Update {
  readonly id: TodoId;
  readonly done: boolean;
}

/**
 * Writes that one query sends to the database. They are concurrent, so any order is correct. The functions that add a write
 * return what gives its answer once the batch is stored; undefined if the batch is full or already affects the same to-do or
 * idempotency key.
 */
export class Batch {
  readonly #maxTodos: number;
  readonly #inserts: Insert[] = [];
  readonly #updates: Update[] = [];
  readonly #deletes: TodoId[] = [];
  /** The to-dos and idempotency keys that the batch affects. */
  readonly #subjects = new Set<TodoId | string>();
  /** One line per write of each type, once the batch is stored. */
  #lines: Record<keyof Outcomes, readonly string[]> = { created: [], updated: [], deleted: [] };
  #positionOf: (id: TodoId) => Position = () => {
    throw new Error("the batch is not stored");
  };

  constructor(maxTodos: number) {
    this.#maxTodos = maxTodos;
  }

  get size(): number {
    return this.#inserts.length + this.#updates.length + this.#deletes.length;
  }

  insert(write: Insert): (() => Written & { readonly id: TodoId; readonly json: string }) | undefined {
    return this.#add(this.#inserts, write, write.keyHash, "created", (line) => {
      const error = INSERT_ERRORS.get(line);
      if (error !== undefined) throw error(this.#maxTodos);
      const id = BigInt(line);
      return { id, json: encodeTodo({ ...write, id, done: false }), position: this.#positionOf(id) };
    });
  }

  update(write: Update): (() => Written & { readonly json: string | undefined }) | undefined {
    return this.#add(this.#updates, write, write.id, "updated", (json) => ({
      json: json === "" ? undefined : json,
      position: this.#positionOf(write.id),
    }));
  }

  delete(id: TodoId): (() => Written & { readonly existed: boolean }) | undefined {
    return this.#add(this.#deletes, id, id, "deleted", (line) => ({
      existed: line === "true",
      position: this.#positionOf(id),
    }));
  }

  /** The parameters of `todo_service.write`. */
  get values(): Value[] {
    return [
      joinLines(this.#inserts, ({ title }) => JSON.stringify(title)),
      joinLines(this.#inserts, ({ keyHash }) => keyHash),
      joinLines(this.#inserts, ({ titleHash }) => titleHash),
      joinLines(this.#updates, ({ id }) => String(id)),
      joinLines(this.#updates, ({ done }) => String(done)),
      joinLines(this.#deletes, String),
    ];
  }

  /**
   * To be called when the batch is stored.
   * @param tail the latest events, those of the batch included
   */
  stored({ created, updated, deleted }: Outcomes, { position, events }: Tail): void {
    this.#lines = {
      created: splitLines(created, this.#inserts.length),
      updated: splitLines(updated, this.#updates.length),
      deleted: splitLines(deleted, this.#deletes.length),
    };
    const changes = new Map(events.map((event) => [event.id, event.position]));
    // The batch has one write of a to-do at most, so its last event is that of the write, or the write changed nothing.
    this.#positionOf = (id) => changes.get(id) ?? position;
  }

  #add<Write, Answer>(
    writes: Write[],
    write: Write,
    subject: TodoId | string,
    type: keyof Outcomes,
    answer: (line: string) => Answer,
  ): (() => Answer) | undefined {
    if (this.size === MAX_WRITES || this.#subjects.has(subject)) return undefined;
    if (subject !== "") this.#subjects.add(subject);
    const index = writes.push(write) - 1;
    return () => answer(this.#lines[type][index] ?? "");
  }
}

/** Returns one line for each item, as the functions of the database read them; null without items. */
export const joinLines = <W>(writes: readonly W[], line: (write: W) => string): string | null =>
  writes.length === 0 ? null : writes.map(line).join("\n");

function splitLines(lines: string | null, count: number): readonly string[] {
  const outcomes = lines?.split("\n") ?? [];
  if (outcomes.length === count) return outcomes;
  throw new Error(`the database returned ${outcomes.length} outcomes for ${count} writes`);
}
