import type { Position, TodoEvent } from "../../todo.ts";
import { decodeEvents } from "../records/event-codec.ts";
import type { TodoState } from "../state.ts";

/** The position of the database and its latest events, as `todo_service.tail` returns them. */
export interface TailRow {
  readonly epoch: string;
  readonly sequence: bigint;
  /** Whether the requested position belongs to the history of the database, which may have lost changes. */
  readonly is_known: boolean;
  /** The events after the requested position, one per line. */
  readonly tail: string | null;
}

/** The same, decoded. */
export interface Tail {
  readonly position: Position;
  readonly isKnown: boolean;
  readonly events: readonly TodoEvent[];
}

export function decodeTail({ epoch, sequence, is_known, tail }: TailRow): Tail {
  const position = { epoch, sequence: Number(sequence) };
  return { position, isKnown: is_known, events: tail === null ? [] : decodeEvents(tail, position) };
}

/** Applies the new events to this process's copy. Returns false if changes were lost, or events are missing. */
export function follow(replica: TodoState, { position, isKnown, events }: Tail): boolean {
  if (!isKnown) return false;
  const { sequence } = replica.position;
  if (position.sequence <= sequence) return true;
  const first = events[0]?.position.sequence ?? Number.POSITIVE_INFINITY;
  if (first > sequence + 1) return false;
  for (const event of events) if (event.position.sequence > sequence) replica.apply(event);
  return true;
}
