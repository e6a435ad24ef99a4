import type { TodoEvent } from "./todo.ts";

/**
 * The last `capacity` changes of one store, and its subscribers. A subscriber is a cursor into the ring buffer.
 * A slow subscriber therefore needs no memory; its stream ends when its next event is overwritten.
 */
export class ChangeFeed {
  readonly #ring: (TodoEvent | undefined)[];
  #last: number;
  #first: number;
  readonly #waiting = new Set<() => void>();
  readonly #cursors = new Set<{ next: number }>();
  #ended = false;

  /** @param last the sequence number before the first published event */
  constructor(capacity: number, last: number) {
    this.#ring = new Array(capacity).fill(undefined);
    this.#last = last;
    this.#first = last + 1;
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
    const { sequence: n } = event.position;
    this.#ring[n % this.#ring.length] = event;
    this.#last = n;
    if (n - this.#first >= this.#ring.length) this.#first = n - this.#ring.length + 1;
    this.#wake();
  }

  /** Ends the streams of all subscribers. */
  end(): void {
    this.#ended = true;
    this.#wake();
  }

  /** Yields events after sequence number `n`, stored and future. Ends if `signal` aborts or the next event is gone. */
  async *after(n: number, signal: AbortSignal): AsyncGenerator<TodoEvent, void, undefined> {
    let wake = (): void => {};
    const onAbort = (): void => wake();
    signal.addEventListener("abort", onAbort);
    const cursor = { next: n + 1 };
    this.#cursors.add(cursor);
    try {
      while (!signal.aborted && !this.#ended && this.#has(cursor.next)) {
        if (cursor.next > this.#last) {
          // Promise.race with a promise of the abort would leak one reaction per event.
          await new Promise<void>((resolve) => {
            wake = resolve;
            this.#waiting.add(wake);
          });
          continue;
        }
        const event = this.#ring[cursor.next % this.#ring.length];
        if (event === undefined) return;
        cursor.next++;
        yield event;
      }
    } finally {
      signal.removeEventListener("abort", onAbort);
      this.#waiting.delete(wake);
      this.#cursors.delete(cursor);
    }
  }

  /** Whether the event with this sequence number is stored, or is the next one. */
  #has(n: number): boolean {
    return n >= this.#first && n <= this.#last + 1;
  }

  #wake(): void {
    for (const wake of this.#waiting) wake();
    this.#waiting.clear();
  }
}
