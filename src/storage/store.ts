import type { Awaitable } from "../awaitable.ts";
import type { KeyStore } from "../credential/key.ts";
import { ServiceError } from "../error.ts";
import type { TodoStore } from "../todo.ts";
import type { OnProgress } from "./maintenance.ts";

/** The sizes of a store's files and of their file system, in bytes. */
export type FileUsage = Readonly<Record<"databaseBytes" | "walBytes" | "freeBytes" | "totalBytes", number>>;

/** A store of to-dos and API keys. */
export interface Store extends TodoStore {
  readonly keys: KeyStore;
  /** Identifies a SQLite store, also after a restart. */
  readonly id?: string;
  /** The number of to-dos, as far as this process knows. */
  readonly count: number;
  /** The number of changes that the slowest reader of `events` has not read. */
  readonly eventLag: number;
  /** The file with everything that the server holds, while the files of the store fail their check. */
  readonly rescueFile?: string | undefined;
  /** The usage of a SQLite store, as of the last check of its files. */
  readonly fileUsage?: FileUsage | undefined;
  /** The maximum number of connections to the database, and the queries that run or wait for one. */
  readonly pool?: { readonly connections: number; readonly queries: number };
}

/** The store cannot be opened now, but the same call may succeed later. The message is one line. */
export class StoreUnavailableError extends Error {
  override readonly name = "StoreUnavailableError";
}

/** The API keys of a store that a server in another process may be using. */
export interface KeyStoreHandle {
  readonly keys: KeyStore;
  /** Waits until a running server uses the changes. Throws an Error that says when they hold if it does not. */
  readonly close: () => Awaitable<void>;
}

export interface OpenKeysOptions {
  /** Whether to create a missing store. */
  readonly createIfMissing: boolean;
  /** Called with the URL of a store that did not exist. */
  readonly onCreated?: (url: string) => void;
}

export interface StoreOptions {
  /**
   * The maximum number of to-dos (default: 1,000,000); at the limit, inserts fail with `store_full`. Also the maximum
   * number of idempotency keys; at the limit, an insert evicts the oldest.
   */
  readonly maxTodos?: number;
  /** The number of changes stored for `events`. Default: 10,000. */
  readonly maxEvents?: number;
  /** Returns the wall-clock time in milliseconds since 1970. Default: `Date.now`. PostgreSQL uses its own clock instead. */
  readonly now?: () => number;
  /** Called after each batch with its number of writes and the duration of its transaction in milliseconds. */
  readonly onBatch?: (writes: number, ms: number) => void;
  /** Called with the number of idempotency keys that this process evicted within 24 hours of their creation. */
  readonly onIdempotencyKeysEvicted?: (count: number) => void;
  /** Called with one line about a problem that fails no request. */
  readonly onWarning?: (message: string) => void;
  /** Called if a SQLite store did not exist, and was created. */
  readonly onCreated?: () => void;
  /** Called with how much of a SQLite store is loaded. */
  readonly onProgress?: OnProgress;
  /** Another folder for the rescue file of a SQLite store. By default, it is only written beside the store. */
  readonly rescueFolder?: string | undefined;
}

export const DEFAULTS: Required<StoreOptions> = {
  maxTodos: 1_000_000,
  maxEvents: 10_000,
  now: Date.now,
  onBatch: () => {},
  onIdempotencyKeysEvicted: () => {},
  onWarning: () => {},
  onCreated: () => {},
  onProgress: () => {},
  rescueFolder: undefined,
};

/** The connections to PostgreSQL. Their defaults are here, because the help of the command line shows one without the driver. */
export interface PrimaryOptions {
  /** The maximum number of connections, besides the one that listens while events have subscribers. */
  readonly connections: number;
  /** The timeout of a query in milliseconds. Connecting to one host may take a fifth of it. */
  readonly queryTimeoutMs: number;
}

export const PRIMARY_DEFAULTS: PrimaryOptions = { connections: 4, queryTimeoutMs: 10_000 };

/** Returns the error of a failed access. */
export const storeUnavailable = (cause: unknown): ServiceError =>
  cause instanceof ServiceError ? cause : new ServiceError("store_unavailable", { cause });

export const storeFull = (maxTodos: number): ServiceError =>
  new ServiceError("store_full", { detail: `The store is full (${maxTodos} to-dos). Delete one first.` });

export const idsExhausted = (): ServiceError =>
  new ServiceError("store_full", { detail: "The greatest possible id has been assigned." });
