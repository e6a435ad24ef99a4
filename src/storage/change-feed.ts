import { setImmediate as turn } from "node:timers/promises";
import type { Position, TodoEvent } from "../todo.ts";

/** The maximum number of events in a batch: about 64 KiB encoded. */
const MAX_BATCH = 64;
/** Events within this time are one batch, because a batch costs its subscriber as much as several events. */
const BATCH_MS = 10;

/**
 * The last `capacity` changes of one store, and its subscribers. A subscriber is a cursor into the ring buffer.
 * A slow subscriber therefore needs no memory; its stream ends when its next event is overwritten. The events of a store
 * can belong to several epochs. A position is known if its epoch is, and if it is not beyond the end of its epoch.
 */
export class ChangeFeed {
  readonly #ring: (TodoEvent | undefined)[];
  #epoch: string;
  #last: number;
  #first: number;
  /** The last sequence number of each earlier epoch. */
  readonly #ends = new Map<string, number>();
  readonly #waiting = new Set<() => void>();
  readonly #cursors = new Set<{ next: number }>();
  #ended = false;
  #timer: NodeJS.Timeout | undefined;

  /** @param start the position before the first published event */
  constructor(capacity: number, { epoch, sequence }: Position) {
    this.#ring = new Array(capacity).fill(undefined);
    this.#epoch = epoch;
    this.#last = sequence;
    this.#first = sequence + 1;
  }

  /** The position of the last event. */
  get position(): Position {
    return { epoch: this.#epoch, sequence: this.#last };
  }

  /** Whether at least one subscriber reads events. */
  get hasSubscribers(): boolean {
    return this.#cursors.size > 0;
  }

  /** The number of events that the slowest subscriber has not read; 0 without subscribers. */
  get lag(): number {
    let lag = 0;
    for (const { next } of this.#cursors) lag = Math.max(lag, this.#last + 1 - next);
    return lag;
  }

  /** Adds the next event. Sequence numbers must be consecutive. */
  publish(event: TodoEvent): void {
    const { epoch, sequence } = event.position;
    if (epoch !== this.#epoch) this.#beginEpoch(epoch);
    this.#ring[sequence % this.#ring.length] = event;
    this.#last = sequence;
    if (sequence - this.#first >= this.#ring.length) this.#first = sequence - this.#ring.length + 1;
    if (this.#waiting.size > 0) this.#wakeSoon();
  }

  /** Ends the streams of all subscribers. */
  end(): void {
    this.#ended = true;
    this.#wake();
  }

  /**
   * Yields batches of the events after a position, stored and future. Ends if `signal` aborts, or the position or the next
   * event is unknown.
   */
  async *after(
    { epoch, sequence }: Position,
    signal: AbortSignal,
  ): AsyncGenerator<readonly TodoEvent[], void, undefined> {
    const end = epoch === this.#epoch ? this.#last : this.#ends.get(epoch);
    if (end === undefined || sequence > end) return;
    const isOpen = (): boolean => !signal.aborted && !this.#ended;
    let wake = (): void => {};
    const onAbort = (): void => wake();
    signal.addEventListener("abort", onAbort);
    const cursor = { next: sequence + 1 };
    this.#cursors.add(cursor);
    try {
      while (isOpen() && cursor.next >= this.#first) {
        const batch = this.#read(cursor.next);
        cursor.next += batch.length;
        if (batch.length > 0) yield batch;
        if (!isOpen()) return;
        const unread = this.#last + 1 - cursor.next;
        if (unread >= MAX_BATCH) {
          // Requests run in between.
          await turn();
          continue;
        }
        if (unread > 0) this.#wakeSoon();
        // Promise.race with a promise of the abort would leak one reaction per batch.
        await new Promise<void>((resolve) => {
          wake = resolve;
          this.#waiting.add(wake);
        });
      }
    } finally {
      signal.removeEventListener("abort", onAbort);
      this.#waiting.delete(wake);
      this.#cursors.delete(cursor);
    }
  }

  /** Returns the stored events from a sequence number on, as many as one batch may have. */
  #read(first: number): readonly TodoEvent[] {
    const last = Math.min(this.#last, first + MAX_BATCH - 1);
    const batch: TodoEvent[] = [];
    for (let sequence = first; sequence <= last; sequence++) {
      const event = this.#ring[sequence % this.#ring.length];
      if (event !== undefined) batch.push(event);
    }
    return batch;
  }

  #beginEpoch(epoch: string): void {
    this.#ends.set(this.#epoch, this.#last);
    for (const [earlier, end] of this.#ends) if (end < this.#first - 1) this.#ends.delete(earlier);
    this.#epoch = epoch;
  }

  /** Wakes the subscribers after the time of a batch. */
  #wakeSoon(): void {
    this.#timer ??= setTimeout(() => this.#wake(), BATCH_MS);
  }

  #wake(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    for (const wake of this.#waiting) wake();
    this.#waiting.clear();
  }
}
