import type { Todo, TodoApiError, TodoId } from "../../src/sdk/client.ts";
import type { Write } from "../../src/sdk/overlay.ts";

/** `cleared`: deleted, unless the to-do was reopened meanwhile. */
export type ChangeKind = "created" | "done" | "open" | "deleted" | "cleared";

/**
 * A to-do before the change, or a new one, with what it knows of the list. One that the service does not have yet has an id of
 * `newId()`, which is also its idempotency key. Titles never change, so another title under an id shows that the service has
 * another list.
 */
export type Target = Todo & Pick<Write, "after" | "position">;

/** One change of the user's, to one or more to-dos, that the service has not confirmed. */
export interface Change {
  /** From `newId()`: sorts the changes of all windows by time. */
  readonly key: string;
  readonly kind: ChangeKind;
  readonly targets: readonly Target[];
  /** The position of the service's list when it was sent first. A sent change stays as it is. */
  readonly sent?: string;
  /** Who made it, if the service is private. */
  readonly owner?: string;
  /** A deletion that can be undone. Only its window has it. */
  readonly isHeld?: boolean;
}

/** What the service did not do, and why. */
export interface Rejection {
  readonly target: Target;
  /** `gone`: the to-do was deleted elsewhere. `other`: the id belongs to another to-do now. */
  readonly reason: "gone" | "other" | TodoApiError;
}

export const isDeletion = (kind: ChangeKind): kind is "deleted" | "cleared" =>
  kind === "deleted" || kind === "cleared";

/** What takes a change back. A deletion that was sent cannot be taken back. */
export const INVERSES = { created: "deleted", done: "open", open: "done" } as const;

const EFFECTS = {
  created: "create",
  done: "setDone",
  open: "setDone",
  deleted: "delete",
  cleared: "delete",
} as const;

/** Returns what a change does to a to-do. */
export function toWrite(kind: ChangeKind, { after, position, ...todo }: Target): Write {
  const done = kind === "done" || (kind !== "open" && todo.done);
  return { kind: EFFECTS[kind], todo: { ...todo, done }, after, position };
}

let lastTime = 0;
const RANDOM_DIGITS = 20;

/** Returns digits that sort by time, also after every id of the service, which has at most 20 digits. */
export function newId(): TodoId {
  lastTime = Math.max(Date.now() * 1000, lastTime + 1);
  const random = crypto.getRandomValues(new Uint32Array(2)).join("").padStart(RANDOM_DIGITS, "0");
  return `${lastTime}${random}`;
}

/** Lets each later id sort after one that a page made before, although the clock may have been set back since. */
export function passId(id: TodoId): void {
  lastTime = Math.max(lastTime, Number(id.slice(0, -RANDOM_DIGITS)));
}
