import type { ServiceError } from "../error.ts";
import type { Awaitable } from "../todo.ts";
import { storeUnavailable } from "./store.ts";

/** A write fails after this time, in milliseconds. It may still be stored. */
const ANSWER_MS = 15_000;

const tooLate = (): ServiceError =>
  storeUnavailable(new Error(`the write took longer than ${ANSWER_MS / 1000} seconds`));

/** Resolves with the result of a write, or rejects with `store_unavailable` if it takes too long. */
export async function answerInTime<T>(write: Promise<T>): Promise<T> {
  const late = Promise.withResolvers<never>();
  const timer = setTimeout(() => late.reject(tooLate()), ANSWER_MS).unref();
  try {
    return await Promise.race([write, late.promise]);
  } finally {
    clearTimeout(timer);
  }
}

/**
 * Adds a write to a batch. Returns what the write returns or throws once the batch is stored; undefined if the write must wait
 * for a later batch.
 */
type Join<Batch, Answer> = (batch: Batch) => (() => Answer) | undefined;

/**
 * Collects concurrent writes in batches, and commits one batch after another. The writes of a batch are answered after its
 * commit, or fail with it.
 */
export class WriteQueue<Batch> {
  readonly #begin: () => Awaitable<Batch>;
  readonly #commit: (batch: Batch) => Promise<void>;
  #waiting: Group<Batch> | undefined;
  #running: Promise<void> | undefined;

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
    return new Promise((resolve, reject) => {
      this.#enqueue(new JoiningWrite(join, resolve, reject));
      this.#running ??= this.#run();
    });
  }

  /** Fails the writes that wait for a batch. */
  failWaiting(failure: unknown): void {
    this.#takeWaiting()?.fail(failure);
  }

  /** Resolves when no write waits. */
  async whenIdle(): Promise<void> {
    while (this.#running !== undefined) await this.#running;
  }

  #enqueue(write: Write<Batch>): void {
    this.#waiting ??= new Group((late) => {
      if (late === this.#waiting) this.#waiting = undefined;
    });
    this.#waiting.add(write);
  }

  #takeWaiting(): Group<Batch> | undefined {
    const group = this.#waiting;
    this.#waiting = undefined;
    return group;
  }

  async #run(): Promise<void> {
    while (this.#waiting !== undefined) {
      // The first turn reads requests that arrived meanwhile, the second those caused by the last responses.
      await new Promise(setImmediate);
      await new Promise(setImmediate);
      await this.#writeBatch();
    }
    this.#running = undefined;
  }

  async #writeBatch(): Promise<void> {
    let group: Group<Batch> | undefined;
    try {
      const batch = await this.#begin();
      group = this.#takeWaiting();
      if (group === undefined) return;
      for (const write of group.join(batch)) this.#enqueue(write);
      await this.#commit(batch);
      group.settle();
    } catch (cause) {
      group ??= this.#takeWaiting();
      group?.fail(storeUnavailable(cause));
    }
  }
}

/** The writes of one batch. They fail together if they take too long. */
class Group<Batch> {
  #writes: Write<Batch>[] = [];
  readonly #timer: NodeJS.Timeout;

  constructor(onLate: (group: Group<Batch>) => void) {
    this.#timer = setTimeout(() => {
      onLate(this);
      this.fail(tooLate());
    }, ANSWER_MS).unref();
  }

  add(write: Write<Batch>): void {
    this.#writes.push(write);
  }

  /** Adds the writes to a batch. Returns those that must wait for a later one. */
  join(batch: Batch): readonly Write<Batch>[] {
    const left: Write<Batch>[] = [];
    this.#writes = this.#writes.filter((write) => {
      const hasJoined = write.join(batch);
      if (!hasJoined) left.push(write);
      return hasJoined;
    });
    return left;
  }

  settle(): void {
    clearTimeout(this.#timer);
    for (const write of this.#writes) write.settle();
  }

  fail(failure: unknown): void {
    clearTimeout(this.#timer);
    for (const write of this.#writes.splice(0)) write.fail(failure);
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
  readonly #join: Join<Batch, Answer>;
  readonly #resolve: (answer: Answer) => void;
  readonly fail: (failure: unknown) => void;
  #answer: (() => Answer) | undefined;

  constructor(
    join: Join<Batch, Answer>,
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
