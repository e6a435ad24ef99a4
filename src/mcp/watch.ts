import type { Subscriptions } from "./server.ts";
import type { Todos } from "./tools.ts";

/** Changes within this time are reported together, because a client reads the whole list after each report. */
const COALESCE_MS = 100;

/** Follows the event stream of the service while there are subscribers. */
export class ChangeWatch implements Subscriptions {
  readonly #todos: Todos;
  readonly #onChange: () => void;
  readonly #onEnd: (error: unknown) => void;
  readonly #subscribers = new Set<unknown>();
  #stream: { readonly isOpen: Promise<void>; readonly close: () => void } | undefined;
  #timer: ReturnType<typeof setTimeout> | undefined;

  /**
   * @param onChange is called after changes, and when changes may have been missed
   * @param onEnd is called if the service rejects the stream after `add` resolved; no more changes are reported then
   */
  constructor(todos: Todos, onChange: () => void, onEnd: (error: unknown) => void) {
    this.#todos = todos;
    this.#onChange = onChange;
    this.#onEnd = onEnd;
  }

  /**
   * Adds a subscriber. Resolves when changes from now on are reported, also if the service cannot be reached now. Rejects
   * if the service rejects the stream.
   */
  async add(subscriber: unknown): Promise<void> {
    this.#subscribers.add(subscriber);
    this.#stream ??= this.#open();
    try {
      await this.#stream.isOpen;
    } catch (error) {
      this.delete(subscriber);
      throw error;
    }
  }

  delete(subscriber: unknown): void {
    if (this.#subscribers.delete(subscriber) && this.#subscribers.size === 0) this.close();
  }

  /** Closes the event stream. */
  close(): void {
    this.#stream?.close();
    this.#stream = undefined;
    clearTimeout(this.#timer);
    this.#timer = undefined;
  }

  #open() {
    const controller = new AbortController();
    const opened = Promise.withResolvers<void>();
    const stream = { isOpen: opened.promise, close: () => controller.abort() };
    let isOpen = false;
    const onOpen = (): void => {
      isOpen = true;
      opened.resolve();
    };
    this.#read(controller.signal, onOpen).then(opened.resolve, (error) => {
      if (this.#stream === stream) this.#stream = undefined;
      opened.reject(error);
      // Otherwise `add` rejects with the error.
      if (isOpen) this.#onEnd(error);
    });
    return stream;
  }

  async #read(signal: AbortSignal, onOpen: () => void): Promise<void> {
    let hasPosition = false;
    let mayHaveMissed = false;
    for await (const { type } of this.#todos.events({ signal })) {
      switch (type) {
        case "connected":
          if (mayHaveMissed) this.#report();
          mayHaveMissed = false;
          hasPosition = true;
          onOpen();
          break;
        case "disconnected":
          // With a position, the client gets the missed changes when it reconnects.
          if (!hasPosition) mayHaveMissed = true;
          onOpen();
          break;
        default:
          this.#report();
      }
    }
  }

  #report(): void {
    this.#timer ??= setTimeout(() => {
      this.#timer = undefined;
      this.#onChange();
    }, COALESCE_MS);
  }
}
