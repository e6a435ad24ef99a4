import type { Failure } from "../../failure.ts";
import type { TodoId } from "../../todo.ts";
import type { Value } from "./primary.ts";

const MOST_WRITES = 1000;

/** What became of a write: the id or the JSON of the to-do, or why there is none. */
export type Outcome =
  | { readonly type: "made"; readonly id: TodoId }
  | { readonly type: "updated"; readonly json: string }
  | { readonly type: "deleted" | "absent" | Refusal };

/** Why an insert made nothing. */
type Refusal = "reused" | "no room for key" | "no room" | "no id";

/** What `todo_service.write` gives in place of an id. */
const REFUSALS = new Map<string, Refusal>([
  ["-1", "reused"],
  ["-2", "no room for key"],
  ["-3", "no room"],
  ["-4", "no id"],
]);

/** A write that waits for its batch. */
interface Waiting {
  readonly settle: (outcome: Outcome) => void;
  readonly fail: (failure: Failure) => void;
}

export type Write = Waiting & (Insert | Update | Delete);

interface Insert {
  readonly type: "insert";
  readonly title: string;
  /** Digests of the idempotency key and of the title; empty without such a key. */
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

/** What `todo_service.write` tells of a batch: a line for each write of a kind. */
export interface Outcomes {
  readonly made: string | null;
  readonly updated: string | null;
  readonly deleted: string | null;
}

/** Writes that go to the database together. They were asked for at the same time: any order of them is right. */
export class Batch {
  readonly #inserts: (Waiting & Insert)[] = [];
  readonly #updates: (Waiting & Update)[] = [];
  readonly #deletes: (Waiting & Delete)[] = [];
  /** The to-dos and the idempotency keys that it is about. */
  readonly #about = new Set<TodoId | string>();
  #size = 0;

  get size(): number {
    return this.#size;
  }

  /** Takes a write in; not, and false, when it is full, or has one about the same to-do or key. */
  take(write: Write): boolean {
    const about = write.type === "insert" ? write.keyHash : write.id;
    if (this.#size === MOST_WRITES || this.#about.has(about)) return false;
    if (about !== "") this.#about.add(about);
    this.#size++;
    if (write.type === "insert") this.#inserts.push(write);
    else if (write.type === "update") this.#updates.push(write);
    else this.#deletes.push(write);
    return true;
  }

  /** The lists that `todo_service.write` takes. */
  get values(): Value[] {
    return [
      linesOf(this.#inserts, ({ title }) => JSON.stringify(title)),
      linesOf(this.#inserts, ({ keyHash }) => keyHash),
      linesOf(this.#inserts, ({ titleHash }) => titleHash),
      linesOf(this.#updates, ({ id }) => String(id)),
      linesOf(this.#updates, ({ done }) => String(done)),
      linesOf(this.#deletes, ({ id }) => String(id)),
    ];
  }

  settle({ made, updated, deleted }: Outcomes): void {
    settleEach(this.#inserts, made, (line) => {
      const refusal = REFUSALS.get(line);
      return refusal === undefined ? { type: "made", id: BigInt(line) } : { type: refusal };
    });
    settleEach(this.#updates, updated, (json) =>
      json === "" ? { type: "absent" } : { type: "updated", json },
    );
    settleEach(this.#deletes, deleted, (line) => ({ type: line === "true" ? "deleted" : "absent" }));
  }

  fail(failure: Failure): void {
    for (const { fail } of [...this.#inserts, ...this.#updates, ...this.#deletes]) fail(failure);
  }
}

const linesOf = <W>(writes: readonly W[], line: (write: W) => string): string | null =>
  writes.length === 0 ? null : writes.map(line).join("\n");

function settleEach(
  writes: readonly Waiting[],
  lines: string | null,
  outcome: (line: string) => Outcome,
): void {
  const outcomes = lines?.split("\n") ?? [];
  if (outcomes.length !== writes.length)
    throw new Error(`${outcomes.length} outcomes of ${writes.length} writes`);
  for (const [index, line] of outcomes.entries()) writes[index]?.settle(outcome(line));
}
