/** Remembers whether the last write of a store failed. Only then, it checks whether writes succeed again. */
export class WriteHealth {
  readonly #check: () => Promise<void>;
  #hasFailed = false;
  #checking: Promise<void> | undefined;

  /** @param check rejects with `store_unavailable` while writes fail */
  constructor(check: () => Promise<void>) {
    this.#check = check;
  }

  failed(): void {
    this.#hasFailed = true;
  }

  succeeded(): void {
    this.#hasFailed = false;
  }

  /** Returns undefined if the last write succeeded. Calls during a check share its result. */
  run(): Promise<void> | undefined {
    if (!this.#hasFailed) return undefined;
    this.#checking ??= this.#check()
      .then(() => this.succeeded())
      .finally(() => {
        this.#checking = undefined;
      });
    return this.#checking;
  }
}
