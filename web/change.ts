import type { TodoId } from "../src/sdk/client.ts";

/** `cleared`: deleted, unless the to-do was reopened meanwhile. */
export type ChangeKind = "created" | "done" | "open" | "deleted" | "cleared";

export interface Target {
  /** A to-do that the service does not have yet has an id of `newId()`, which is also its idempotency key. */
  readonly id: TodoId;
  /** Titles never change, so another title under this id shows that the service has another list. */
  readonly title: string;
  /** A new to-do that is already done. */
  readonly done?: boolean;
  /** The newest to-do of the list when a new to-do was added. */
  readonly after?: TodoId;
}

/** One change of the user's, to one or more to-dos, that the service has not confirmed. */
export interface Change {
  /** From `newId()`: sorts the changes of all windows by time. */
  readonly key: string;
  readonly kind: ChangeKind;
  readonly targets: readonly Target[];
  /** True when its time to undo is over. */
  readonly isReleased: boolean;
  /** When it was sent first, in milliseconds since 1970. A sent change cannot be undone. */
  readonly sentAt?: number;
  /** Who made it, if the service is private. */
  readonly owner?: string;
}

export const isDeletion = (kind: ChangeKind): boolean => kind === "deleted" || kind === "cleared";

let lastTime = 0;

/** Returns digits that sort by time, also after every id of the service, which has at most 20 digits. */
export function newId(): TodoId {
  lastTime = Math.max(Date.now() * 1000, lastTime + 1);
  const random = crypto.getRandomValues(new Uint32Array(2)).join("").padStart(20, "0");
  return `${lastTime}${random}`;
}

/** Returns whether an id was made here, because the service has not created the to-do yet. */
export const isNewId = (id: TodoId): boolean => id.length > 20;
