/** The rules of writes, for every store that decides them itself. PostgreSQL decides in its own functions. */

import {
  encodeTodo,
  type Position,
  type TodoEvent,
  type TodoId,
  type TodoJson,
  type Written,
} from "../todo.ts";
import { type IdempotencyRecord, idempotencyKeyReused, sha256 } from "./records/idempotency.ts";
import { idsExhausted, type StoreOptions, storeFull } from "./store.ts";

export interface WriteLimits extends Pick<Required<StoreOptions>, "maxTodos" | "now"> {
  /** The greatest possible id. */
  readonly maxId: TodoId;
}

/** What a write reads and changes: the state of a store, or changes that are not stored yet on top of it. */
export interface Writable {
  readonly limits: WriteLimits;
  readonly count: number;
  readonly lastId: TodoId;
  readonly position: Position;
  /** The position of the next change. */
  readonly nextPosition: Position;
  get(id: TodoId): TodoJson | undefined;
  /** Returns whether a to-do is done; `undefined` if it is absent. */
  isDone(id: TodoId): boolean | undefined;
  /** Returns the record of an idempotency key of the last 24 hours. */
  findRecord(keyHash: string): IdempotencyRecord | undefined;
  apply(event: TodoEvent): void;
  /** Sets the `done` of a to-do, which changes it. Returns the resulting to-do. */
  setDone(id: TodoId, done: boolean): TodoJson;
  remember(record: IdempotencyRecord): void;
}

type Created = Written & { readonly id: TodoId; readonly json: string };

/** Does what `TodoStore.insert` says. */
export function insert(to: Writable, title: string, idempotencyKey?: string): Created {
  if (idempotencyKey === undefined) return create(to, title);
  const [keyHash, titleHash] = [sha256(idempotencyKey), sha256(title)];
  const known = to.findRecord(keyHash);
  if (known !== undefined) {
    if (known.titleHash !== titleHash) throw idempotencyKeyReused();
    const { id } = known;
    return { id, json: encodeTodo({ id, title, done: false }), position: to.position };
  }
  const todo = create(to, title);
  to.remember({ keyHash, titleHash, id: todo.id, createdAt: to.limits.now() });
  return todo;
}

function create(to: Writable, title: string): Created {
  const { maxTodos, maxId } = to.limits;
  if (to.count >= maxTodos) throw storeFull(maxTodos);
  if (to.lastId >= maxId) throw idsExhausted();
  const id = to.lastId + 1n;
  const json = encodeTodo({ id, title, done: false });
  const position = to.nextPosition;
  to.apply({ type: "created", position, id, json });
  return { id, json, position };
}

/** Does what `TodoStore.setDone` says. */
export function setDone(
  to: Writable,
  id: TodoId,
  done: boolean,
): Written & { readonly json: TodoJson | undefined } {
  const before = to.isDone(id);
  const json = before === undefined || before === done ? to.get(id) : to.setDone(id, done);
  return { json, position: to.position };
}

/** Does what `TodoStore.delete` says. */
export function remove(to: Writable, id: TodoId): Written & { readonly existed: boolean } {
  const existed = to.isDone(id) !== undefined;
  if (existed) to.apply({ type: "deleted", position: to.nextPosition, id });
  return { existed, position: to.position };
}
