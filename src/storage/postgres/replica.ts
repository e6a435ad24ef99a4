import type { ChangeFeed } from "../../change-feed.ts";
import type { Position } from "../../todo.ts";
import { decodeEvents, type StoredEvent } from "../records/event-codec.ts";
import type { Table } from "../table/table.ts";

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
  readonly events: readonly StoredEvent[];
}

/** This process's copy of the to-dos and the latest changes. */
export class Replica {
  readonly table: Table;
  readonly feed: ChangeFeed;

  constructor(table: Table, feed: ChangeFeed) {
    this.table = table;
    this.feed = feed;
  }

  get position(): Position {
    return this.feed.position;
  }

  /** Applies the new events. Returns false if changes were lost, or events are missing. */
  follow({ position, isKnown, events }: Tail): boolean {
    if (!isKnown) return false;
    const { sequence } = this.position;
    if (position.sequence <= sequence) return true;
    const first = events[0]?.position.sequence ?? Number.POSITIVE_INFINITY;
    if (first > sequence + 1) return false;
    for (const event of events) if (event.position.sequence > sequence) this.#apply(event);
    return true;
  }

  #apply(event: StoredEvent): void {
    if (event.type === "created") this.table.append(event.id, event.json);
    else if (event.type === "updated") this.table.setDone(event.id, event.json.endsWith("true}"));
    else this.table.delete(event.id);
    this.feed.publish(event);
  }
}

export function decodeTail({ epoch, sequence, is_known, tail }: TailRow): Tail {
  const position = { epoch, sequence: Number(sequence) };
  return { position, isKnown: is_known, events: tail === null ? [] : decodeEvents(tail, position) };
}
