import type { KeyStore } from "../credential/key.ts";
import { Failure } from "../failure.ts";
import type { Awaitable, TodoStore } from "../todo.ts";

/** What every storage engine gives. */
export interface Store extends TodoStore {
  readonly keys: KeyStore;
  /** How many to-dos it holds, as far as this process knows. */
  readonly count: number;
}

/** The keys of a store that another process may be serving. */
export interface OpenKeys {
  readonly keys: KeyStore;
  readonly close: () => Awaitable<void>;
}

export interface StoreOptions {
  /** How many to-dos it holds at most, and how many idempotency keys: beyond, an insert fails with `store_full`. */
  readonly maxTodos?: number;
  /** How many changes it keeps for `events`. */
  readonly maxEvents?: number;
  /** Milliseconds since 1970. */
  readonly now?: () => number;
  /** Told of each batch of writes that has been done, and how many milliseconds its transaction took. */
  readonly onBatch?: (writes: number, ms: number) => void;
}

export const DEFAULTS: Required<StoreOptions> = {
  maxTodos: 1_000_000,
  maxEvents: 10_000,
  now: Date.now,
  onBatch: () => {},
};

export const noRoom = (maxTodos: number): Failure =>
  new Failure("store_full", { detail: `It holds its ${maxTodos} to-dos: delete one first.` });

export const noMoreIds = (): Failure =>
  new Failure("store_full", { detail: "The last id there is has been given out." });
