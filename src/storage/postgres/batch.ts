import type { ServiceError } from "../../error.ts";
import type { TodoId } from "../../todo.ts";
import type { Value } from "./primary.ts";

const MAX_WRITES = 1000;

/** The result of a write: the id or the JSON of the to-do, or the reason why there is none. */
export type Outcome =
  | { readonly type: "created"; readonly id: TodoId }
  | { readonly type: "updated"; readonly json: string }
  | { readonly type: "deleted" | "absent" | InsertError };

/** The reason why an insert created nothing. */
type InsertError = "reused" | "no room" | "no id";

/** The codes that `todo_service.write` returns in place of an id. */
const INSERT_ERRORS = new Map<string, InsertError>([
  ["-1", "reused"],
  ["-2", "no room"],
  ["-3", "no id"],
]);

/** A write that waits for its batch. */
interface Waiting {
  readonly settle: (outcome: Outcome) => void;
  readonly fail: (failure: ServiceError) => void;
}

export type Write = Waiting & (Insert | Update | Delete);

interface Insert {
  readonly type: "insert";
  readonly title: string;
  /** SHA-256 of the idempotency key and of the title; empty without such a key. */
  readonly keyHash: string;
  readonly titleHash: string;
}

interface Update {
  readonly type: "update";
  readonly id: TodoId;
  readonly done: boolean;
}

interface Delete {
  readonly type: "delete";
  readonly id: TodoId;
}

/** The columns that `todo_service.write` returns: one line per write of each type, and a count. */
export interface Outcomes {
  readonly created: string | null;
  readonly updated: string | null;
  readonly deleted: string | null;
  /** The number of idempotency keys that it evicted. */
  readonly evicted: bigint;
}

/** Writes that one query sends to the database. They are concurrent, so any order is correct. */
export class Batch {
  readonly #inserts: (Waiting & Insert)[] = [];
  readonly #updates: (Waiting & Update)[] = [];
  readonly #deletes: (Waiting & Delete)[] = [];
  /** The to-dos and idempotency keys that the batch affects. */
  readonly #subjects = new Set<TodoId | string>();
  #size = 0;

  get size(): number {
    return this.#size;
  }

  /** Adds a write. Returns false if the batch is full or already affects the same to-do or idempotency key. */
  add(write: Write): boolean {
    const subject = write.type === "insert" ? write.keyHash : write.id;
    if (this.#size === MAX_WRITES || this.#subjects.has(subject)) return false;
    if (subject !== "") this.#subjects.add(subject);
    this.#size++;
    if (write.type === "insert") this.#inserts.push(write);
    else if (write.type === "update") this.#updates.push(write);
    else this.#deletes.push(write);
    return true;
  }

  /** The parameters of `todo_service.write`. */
  get values(): Value[] {
    return [
      joinLines(this.#inserts, ({ title }) => JSON.stringify(title)),
      joinLines(this.#inserts, ({ keyHash }) => keyHash),
      joinLines(this.#inserts, ({ titleHash }) => titleHash),
      joinLines(this.#updates, ({ id }) => String(id)),
      joinLines(this.#updates, ({ done }) => String(done)),
      joinLines(this.#deletes, ({ id }) => String(id)),
    ];
  }

  settle({ created, updated, deleted }: Outcomes): void {
    settleEach(this.#inserts, created, (line) => {
      const error = INSERT_ERRORS.get(line);
      return error === undefined ? { type: "created", id: BigInt(line) } : { type: error };
    });
    settleEach(this.#updates, updated, (json) =>
      json === "" ? { type: "absent" } : { type: "updated", json },
    );
    settleEach(this.#deletes, deleted, (line) => ({ type: line === "true" ? "deleted" : "absent" }));
  }

  fail(failure: ServiceError): void {
    for (const { fail } of [...this.#inserts, ...this.#updates, ...this.#deletes]) fail(failure);
  }
}

/** Returns one line for each item, as the functions of the database read them; null without items. */
export const joinLines = <W>(writes: readonly W[], line: (write: W) => string): string | null =>
  writes.length === 0 ? null : writes.map(line).join("\n");

function settleEach(
  writes: readonly Waiting[],
  lines: string | null,
  outcome: (line: string) => Outcome,
): void {
  const outcomes = lines?.split("\n") ?? [];
  if (outcomes.length !== writes.length)
    throw new Error(`the database returned ${outcomes.length} outcomes for ${writes.length} writes`);
  for (const [index, line] of outcomes.entries()) writes[index]?.settle(outcome(line));
}
