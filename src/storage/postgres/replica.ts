import type { Feed } from "../../event.ts";
import type { Position } from "../../todo.ts";
import { decodeEvents, type StoredEvent } from "../event-line.ts";
import type { Table } from "../table.ts";

/** Where the database has come to, as `todo_service.tail` gives it. */
export interface Tail {
  readonly epoch: string;
  readonly n: bigint;
  /** The events after a position, a line each. */
  readonly tail: string | null;
}

/** This process's copy of the to-dos and the last changes, as of a position. */
export class Replica {
  readonly table: Table;
  readonly feed: Feed;
  readonly #epoch: string;
  #n: number;

  constructor(table: Table, feed: Feed, { epoch, n }: Position) {
    this.table = table;
    this.feed = feed;
    this.#epoch = epoch;
    this.#n = n;
  }

  get position(): Position {
    return { epoch: this.#epoch, n: this.#n };
  }

  /** Goes on to where the database has come; false when that cannot be reached from here. */
  follow({ epoch, n, tail }: Tail): boolean {
    if (epoch !== this.#epoch) return false;
    const last = Number(n);
    if (last <= this.#n) return true;
    const events = tail === null ? [] : decodeEvents(tail, { epoch, n: last });
    const first = events[0]?.position.n ?? Number.POSITIVE_INFINITY;
    if (first > this.#n + 1) return false;
    for (const event of events) if (event.position.n > this.#n) this.#apply(event);
    return true;
  }

  #apply(event: StoredEvent): void {
    if (event.type === "created") this.table.append(event.id, event.json);
    else if (event.type === "updated") this.table.setDone(event.id, event.json.endsWith("true}"));
    else this.table.delete(event.id);
    this.#n = event.position.n;
    this.feed.publish(event);
  }
}
