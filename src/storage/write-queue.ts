import type { Awaitable } from "../todo.ts";
import { storeUnavailable } from "./store.ts";

/**
 * Collects concurrent writes in batches, and commits one batch after another. Each write of a batch is answered after its
 * commit, or fails with it.
 */
export class WriteQueue<Batch> {
  readonly #begin: () => Awaitable<Batch>;
  readonly #commit: (batch: Batch) => Promise<void>;
  #waiting: Write<Batch>[] = [];
  #running: Promise<void> | undefined;

  /**
   * @param begin returns an empty batch; if it fails, all waiting writes fail
   * @param commit stores a batch; if it fails, all writes of the batch fail
   */
  constructor(begin: () => Awaitable<Batch>, commit: (batch: Batch) => Promise<void>) {
    this.#begin = begin;
    this.#commit = commit;
  }

  /**
   * Adds a write to the next batch.
   * @param join adds the write to a batch, and returns what the write returns or throws after the commit; returns
   * undefined if the write must wait for a later batch
   */
  add<Answer>(join: (batch: Batch) => (() => Answer) | undefined): Promise<Answer> {
    return new Promise((resolve, reject) => {
      this.#waiting.push(new JoiningWrite(join, resolve, reject));
      this.#running ??= this.#run();
    });
  }

  /** Fails the writes that wait for a batch. */
  failWaiting(failure: unknown): void {
    for (const write of this.#waiting.splice(0)) write.fail(failure);
  }

  /** Resolves when no write waits. */
  async whenIdle(): Promise<void> {
    while (this.#running !== undefined) await this.#running;
  }

  async #run(): Promise<void> {
    while (this.#waiting.length > 0) {
      // The first turn reads requests that arrived meanwhile, the second those caused by the last responses.
      await new Promise(setImmediate);
      await new Promise(setImmediate);
      await this.#writeBatch();
    }
    this.#running = undefined;
  }

  async #writeBatch(): Promise<void> {
    let batch: Batch;
    try {
      batch = await this.#begin();
    } catch (cause) {
      this.failWaiting(storeUnavailable(cause));
      return;
    }
    const joined: Write<Batch>[] = [];
    this.#waiting = this.#waiting.filter((write) => {
      const hasJoined = write.join(batch);
      if (hasJoined) joined.push(write);
      return !hasJoined;
    });
    try {
      await this.#commit(batch);
    } catch (cause) {
      const failure = storeUnavailable(cause);
      for (const write of joined) write.fail(failure);
      return;
    }
    for (const write of joined) write.settle();
  }
}

interface Write<Batch> {
  /** Adds the write to a batch. Returns whether it did. */
  join(batch: Batch): boolean;
  /** Answers the write after the commit. */
  settle(): void;
  fail(failure: unknown): void;
}

class JoiningWrite<Batch, Answer> implements Write<Batch> {
  readonly #join: (batch: Batch) => (() => Answer) | undefined;
  readonly #resolve: (answer: Answer) => void;
  readonly fail: (failure: unknown) => void;
  #answer: (() => Answer) | undefined;

  constructor(
    join: (batch: Batch) => (() => Answer) | undefined,
    resolve: (answer: Answer) => void,
    fail: (failure: unknown) => void,
  ) {
    this.#join = join;
    this.#resolve = resolve;
    this.fail = fail;
  }

  join(batch: Batch): boolean {
    try {
      this.#answer = this.#join(batch);
    } catch (error) {
      // Other writes of the batch may be the reason, so the write fails only after the commit.
      this.#answer = () => {
        throw error;
      };
    }
    return this.#answer !== undefined;
  }

  settle(): void {
    try {
      if (this.#answer !== undefined) this.#resolve(this.#answer());
    } catch (error) {
      this.fail(error);
    }
  }
}
