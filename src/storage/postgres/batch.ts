import type { ServiceError } from "../../error.ts";
import type { Position, TodoId, TodoJson, Written } from "../../todo.ts";
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

/** A write that waits for its batch. */
export interface Waiting<Result> {
  readonly settle: (result: Result) => void;
  readonly fail: (failure: ServiceError) => void;
}

interface Insert extends Waiting<Written & { readonly id: TodoId }> {
  readonly type: "insert";
  readonly title: string;
  /** SHA-256 of the idempotency key and of the title; empty without such a key. */
  readonly keyHash: string;
  readonly titleHash: string;
}

interface Update extends Waiting<Written & { readonly json: TodoJson | undefined }> {
  readonly type: "update";
  readonly id: TodoId;
  readonly done: boolean;
}

interface Delete extends Waiting<Written & { readonly existed: boolean }> {
  readonly type: "delete";
  readonly id: TodoId;
}

export type Write = Insert | Update | Delete;

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
  readonly #writes: Write[] = [];
  /** The to-dos and idempotency keys that the batch affects. */
  readonly #subjects = new Set<TodoId | string>();

  get size(): number {
    return this.#writes.length;
  }

  /** Adds a write. Returns false if the batch is full or already affects the same to-do or idempotency key. */
  add(write: Write): boolean {
    const subject = write.type === "insert" ? write.keyHash : write.id;
    if (this.size === MAX_WRITES || this.#subjects.has(subject)) return false;
    if (subject !== "") this.#subjects.add(subject);
    this.#writes.push(write);
    return true;
  }

  /** The parameters of `todo_service.write`. */
  get values(): Value[] {
    const [inserts, updates, deletes] = [this.#of("insert"), this.#of("update"), this.#of("delete")];
    return [
      joinLines(inserts, ({ title }) => JSON.stringify(title)),
      joinLines(inserts, ({ keyHash }) => keyHash),
      joinLines(inserts, ({ titleHash }) => titleHash),
      joinLines(updates, ({ id }) => String(id)),
      joinLines(updates, ({ done }) => String(done)),
      joinLines(deletes, ({ id }) => String(id)),
    ];
  }

  /** @param tail the latest events, those of the batch included */
  settle({ created, updated, deleted }: Outcomes, { position, events }: Tail, maxTodos: number): void {
    const changes = new Map(events.map((event) => [event.id, event.position]));
    // The batch has one write of a to-do at most, so its last event is that of the write, or the write changed nothing.
    const positionOf = (id: TodoId): Position => changes.get(id) ?? position;
    forEachLine(this.#of("insert"), created, ({ settle, fail }, line) => {
      const error = INSERT_ERRORS.get(line);
      const id = BigInt(line);
      if (error === undefined) settle({ id, position: positionOf(id) });
      else fail(error(maxTodos));
    });
    forEachLine(this.#of("update"), updated, ({ id, settle }, json) =>
      settle({ json: json === "" ? undefined : json, position: positionOf(id) }),
    );
    forEachLine(this.#of("delete"), deleted, ({ id, settle }, line) =>
      settle({ existed: line === "true", position: positionOf(id) }),
    );
  }

  fail(failure: ServiceError): void {
    for (const { fail } of this.#writes) fail(failure);
  }

  #of<Type extends Write["type"]>(type: Type): Extract<Write, { type: Type }>[] {
    return this.#writes.filter((write): write is Extract<Write, { type: Type }> => write.type === type);
  }
}

/** Returns one line for each item, as the functions of the database read them; null without items. */
export const joinLines = <W>(writes: readonly W[], line: (write: W) => string): string | null =>
  writes.length === 0 ? null : writes.map(line).join("\n");

function forEachLine<W>(
  writes: readonly W[],
  lines: string | null,
  settle: (write: W, line: string) => void,
): void {
  const outcomes = lines?.split("\n") ?? [];
  if (outcomes.length !== writes.length)
    throw new Error(`the database returned ${outcomes.length} outcomes for ${writes.length} writes`);
  for (const [index, write] of writes.entries()) settle(write, outcomes[index] ?? "");
}
