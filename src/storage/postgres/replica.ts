import type { ChangeFeed } from "../../change-feed.ts";
import type { Position } from "../../todo.ts";
import { decodeEvents, type StoredEvent } from "../records/event-codec.ts";
import type { Table } from "../table/table.ts";

/** The position of the database and its latest events, as `todo_service.tail` returns them. */
export interface Tail {
  readonly epoch: string;
  readonly n: bigint;
  /** The events after a position, one per line. */
  readonly tail: string | null;
}

/** This process's copy of the to-dos and the latest changes, at a position. */
export class Replica {
  readonly table: Table;
  readonly feed: ChangeFeed;
  readonly #epoch: string;
  #sequence: number;

  constructor(table: Table, feed: ChangeFeed, { epoch, sequence }: Position) {
    this.table = table;
    this.feed = feed;
    this.#epoch = epoch;
    this.#sequence = sequence;
  }

  get position(): Position {
    return { epoch: this.#epoch, sequence: this.#sequence };
  }

  /** Applies the new events. Returns false if events are missing or the epoch has changed. */
  follow({ epoch, n, tail }: Tail): boolean {
    if (epoch !== this.#epoch) return false;
    const last = Number(n);
    if (last <= this.#sequence) return true;
    const events = tail === null ? [] : decodeEvents(tail, { epoch, sequence: last });
    const first = events[0]?.position.sequence ?? Number.POSITIVE_INFINITY;
    if (first > this.#sequence + 1) return false;
    for (const event of events) if (event.position.sequence > this.#sequence) this.#apply(event);
    return true;
  }

  #apply(event: StoredEvent): void {
    if (event.type === "created") this.table.append(event.id, event.json);
    else if (event.type === "updated") this.table.setDone(event.id, event.json.endsWith("true}"));
    else this.table.delete(event.id);
    this.#sequence = event.position.sequence;
    this.feed.publish(event);
  }
}
