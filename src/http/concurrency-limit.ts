import { ServiceError } from "../error.ts";

/** Limits how many operations run at the same time. */
export class ConcurrencyLimit {
  readonly #max: number;
  readonly #onReject: () => void;
  #active = 0;

  /**
   * @param max maximum number of concurrent operations
   * @param onReject called for each operation beyond the limit
   */
  constructor(max: number, onReject: () => void) {
    this.#max = max;
    this.#onReject = onReject;
  }

  get isReached(): boolean {
    return this.#active >= this.#max;
  }

  /** Returns the error for an operation beyond the limit, after calling `onReject`. */
  error(): ServiceError {
    this.#onReject();
    return OVERLOADED;
  }

  acquire(): void {
    this.#active++;
  }

  release(): void {
    this.#active--;
  }
}

// Created once, because the stack trace is most of an error's cost.
const OVERLOADED = new ServiceError("overloaded", {
  detail: "The server has reached its limit of concurrent requests.",
});
