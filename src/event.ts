import type { TodoEvent } from "./todo.ts";

/**
 * The last `capacity` changes of one store, and whoever waits for the next. Readers hold no queue of their
 * own: each is a cursor into the ring, so that a slow one costs nothing and is let go when it falls out.
 */
export class Feed {
  readonly #ring: (TodoEvent | undefined)[];
  #last: number;
  #first: number;
  readonly #waiting = new Set<() => void>();
  #readers = 0;
  #ended = false;

  /** @param last the position after which the first published event comes */
  constructor(capacity: number, last: number) {
    this.#ring = new Array(capacity).fill(undefined);
    this.#last = last;
    this.#first = last + 1;
  }

  /** Whether anybody reads events now. */
  get isRead(): boolean {
    return this.#readers > 0;
  }

  /** Takes the next event; positions follow one another without a gap. */
  publish(event: TodoEvent): void {
    const { n } = event.position;
    this.#ring[n % this.#ring.length] = event;
    this.#last = n;
    if (n - this.#first >= this.#ring.length) this.#first = n - this.#ring.length + 1;
    this.#wake();
  }

  /** Nothing more will come: every reader ends. */
  end(): void {
    this.#ended = true;
    this.#wake();
  }

  /** The events after position `n`, kept and to come, until `signal` aborts or the next one is no longer kept. */
  async *after(n: number, signal: AbortSignal): AsyncGenerator<TodoEvent, void, undefined> {
    let wake = (): void => {};
    const onAbort = (): void => wake();
    signal.addEventListener("abort", onAbort);
    this.#readers++;
    try {
      let next = n + 1;
      while (!signal.aborted && !this.#ended && next >= this.#first && next <= this.#last + 1) {
        if (next > this.#last) {
          // Not raced against a promise of the abort, which would gather a reaction with each event.
          await new Promise<void>((resolve) => {
            wake = resolve;
            this.#waiting.add(wake);
          });
          continue;
        }
        const event = this.#ring[next % this.#ring.length];
        if (event === undefined) return;
        next++;
        yield event;
      }
    } finally {
      signal.removeEventListener("abort", onAbort);
      this.#waiting.delete(wake);
      this.#readers--;
    }
  }

  #wake(): void {
    for (const wake of this.#waiting) wake();
    this.#waiting.clear();
  }
}
