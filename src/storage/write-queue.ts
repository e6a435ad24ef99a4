import type { Awaitable } from "../awaitable.ts";
import type { ServiceError } from "../error.ts";
import { withTimeout } from "./failure.ts";
import { storeUnavailable } from "./store.ts";

/** A write fails after this time. It may still be stored. */
const ANSWER_SECONDS = 15;

/** A batch waits for more writes for at most this number of turns of the event loop. */
const MAX_TURNS = 8;

const tooLate = (): ServiceError =>
  storeUnavailable(new Error(`the write took longer than ${ANSWER_SECONDS} seconds`));

/** Resolves with the result of a write, or rejects with `store_unavailable` if it takes too long. */
export const answerInTime = <T>(write: Promise<T>): Promise<T> =>
  withTimeout(ANSWER_SECONDS * 1000, tooLate, () => write);

/**
 * Adds a write to a batch. Returns what the write returns or throws once the batch is stored; undefined if the write must wait
 * for a later batch.
 */
type Join<Batch, Answer> = (batch: Batch) => (() => Answer) | undefined;

interface Write<Batch> {
  /** The second of the queue's clock at which the write fails. */
  readonly failsAt: number;
  /** Adds the write to a batch. Returns whether it did. */
  readonly join: (batch: Batch) => boolean;
  /** Answers the write after the commit. */
  readonly settle: () => void;
  readonly fail: (failure: unknown) => void;
}

/**
 * Collects concurrent writes in batches, and commits one batch after another. The writes of a batch are answered after its
 * commit, or fail with it.
 */
export class WriteQueue<Batch> {
  readonly #begin: () => Awaitable<Batch>;
  readonly #commit: (batch: Batch) => Promise<void>;
  #waiting: Write<Batch>[] = [];
  /** The writes of the batch whose commit is under way. */
  #joined: Write<Batch>[] = [];
  #running: Promise<void> | undefined;
  /** Counts only while a write waits. */
  #seconds = 0;

  /**
   * @param begin returns an empty batch; if it fails, all waiting writes fail
   * @param commit stores a batch; if it fails, all writes of the batch fail
   */
  constructor(begin: () => Awaitable<Batch>, commit: (batch: Batch) => Promise<void>) {
    this.#begin = begin;
    this.#commit = commit;
  }

  /** Adds a write to the next batch. */
  add<Answer>(join: Join<Batch, Answer>): Promise<Answer> {
    const { promise, resolve, reject: fail } = Promise.withResolvers<Answer>();
    let answer: (() => Answer) | undefined;
    this.#waiting.push({
      failsAt: this.#seconds + ANSWER_SECONDS,
      join: (batch) => {
        try {
          answer = join(batch);
        } catch (error) {
          // Other writes of the batch may be the reason, so the write fails only after the commit.
          answer = () => {
            throw error;
          };
        }
        return answer !== undefined;
      },
      settle: () => {
        if (answer !== undefined) resolve(Promise.try(answer));
      },
      fail,
    });
    this.#running ??= this.#run();
    return promise;
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
    const clock = setInterval(() => this.#countSecond(), 1000).unref();
    while (this.#waiting.length > 0) {
      await this.#collect();
      await this.#writeBatch();
    }
    clearInterval(clock);
    this.#running = undefined;
  }

  /** Waits while turns of the event loop bring more writes, because a commit costs as much for many writes as for a few. */
  async #collect(): Promise<void> {
    await new Promise(setImmediate);
    for (let turn = 1, found = 0; turn < MAX_TURNS && this.#waiting.length > found; turn++) {
      found = this.#waiting.length;
      await new Promise(setImmediate);
    }
  }

  async #writeBatch(): Promise<void> {
    try {
      const batch = await this.#begin();
      for (const write of this.#waiting.splice(0)) {
        if (write.join(batch)) this.#joined.push(write);
        else this.#waiting.push(write);
      }
      if (this.#joined.length > 0) await this.#commit(batch);
      for (const write of this.#joined) write.settle();
    } catch (cause) {
      // If the batch could not begin, no write has joined it.
      const failed = this.#joined.length > 0 ? this.#joined : this.#waiting.splice(0);
      for (const write of failed) write.fail(storeUnavailable(cause));
    }
    this.#joined = [];
  }

  /** Fails the writes that have waited too long. Those that have joined a batch may still be stored. */
  #countSecond(): void {
    const seconds = ++this.#seconds;
    const isLate = ({ failsAt }: Write<Batch>): boolean => failsAt <= seconds;
    for (const write of [...this.#joined, ...this.#waiting]) if (isLate(write)) write.fail(tooLate());
    this.#waiting = this.#waiting.filter((write) => !isLate(write));
  }
}

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
