import type { Position, TodoId } from "../todo.ts";

/** The command cannot run, and nothing was changed. The message is one line that says what to do. */
export class PreconditionError extends Error {
  override readonly name = "PreconditionError";
}

/**
 * Called with how far a step of a task is.
 * @param total undefined if the task does not know it
 */
export type OnProgress = (step: string, done: number, total: number | undefined) => void;

/** Options of a task that takes long. */
export interface TaskOptions {
  /** Aborts the task: it rolls back and throws the signal's reason. */
  readonly signal: AbortSignal;
  readonly onProgress?: OnProgress;
}

/** Yields to the event loop once, then throws the signal's reason if it was aborted. */
export async function yieldToEventLoop(signal: AbortSignal): Promise<void> {
  await new Promise(setImmediate);
  signal.throwIfAborted();
}

export interface TransferOptions extends TaskOptions {
  /** Whether API keys are part of the transfer (default: omit). It contains the hashes of their tokens. */
  readonly keys?: "include" | "omit";
}

/** The contents of a backup, or of a store restored from it. */
export interface BackupSummary {
  readonly todos: number;
  /** The number of valid API keys, without links. */
  readonly keys: number;
  readonly bytes: number;
  readonly position: Position;
}

export interface RestoreSummary extends BackupSummary {
  /** Where the files of the store before were moved to. */
  readonly movedTo: string | undefined;
  /** Why the file may have lacked changes, as a copy of the file of a running server does; one line. */
  readonly warning: string | undefined;
}

export interface ExportOptions extends TransferOptions {
  /** What to do if a SQLite store is damaged: `skip` exports everything that can be read (default: refuse). */
  readonly damaged?: "refuse" | "skip";
}

export interface TransferSummary {
  readonly todos: number;
  /** The greatest id ever assigned. The next to-do gets the id after it. */
  readonly lastId: TodoId;
  /** The number of API keys; absent if they were omitted. */
  readonly keys?: number | undefined;
  /** The number of API keys that an import left out, because they were made with one that the file does not have. */
  readonly orphans?: number;
  /** What an export of a damaged store has left out, or what may be wrong in it, one line each. */
  readonly problems?: readonly string[];
}

/** The formats before and after a migration. */
export interface MigrationSummary {
  readonly from: number;
  readonly to: number;
}

/** The result of one check of a store. */
export interface CheckResult {
  readonly name: string;
  readonly isSound: boolean;
  /** What is wrong or may be missing, or `ok`; one line. */
  readonly detail: string;
}

/** Operations on a whole store. A call that fails changes nothing; it throws a PreconditionError or another Error. */
export interface StoreAdmin {
  /** Copies the store into a new file. A server may be using the store. */
  backup(file: string, options: TaskOptions): Promise<BackupSummary>;
  /**
   * Replaces a store that no server uses by a backup, an export or a rescue file. The old files are moved aside. The restored
   * store knows no earlier position.
   */
  restore(file: string, options: TaskOptions): Promise<RestoreSummary>;
  /** Writes a consistent snapshot of all to-dos in the format of `ndjson.ts`. A server may be using the store. */
  export(write: (text: string) => Promise<void>, options: ExportOptions): Promise<TransferSummary>;
  /** Looks for damage. Changes nothing. A server may be using the store. */
  check(): Promise<readonly CheckResult[]>;
  /**
   * Imports an export into a store that never had to-dos; API keys only into a store without API keys. The store then
   * knows no earlier position. No server may be using a SQLite file; servers on PostgreSQL reload everything.
   */
  import(
    source: AsyncIterable<Uint8Array>,
    maxTodos: number,
    options: TransferOptions,
  ): Promise<TransferSummary>;
  /** Brings the schema to the format of this program. On PostgreSQL, it creates a missing one. */
  migrate(): Promise<MigrationSummary>;
}

/** An operation on the store at a path or a URL. */
export type Operation<Name extends keyof StoreAdmin> = (
  store: string,
  ...given: Parameters<StoreAdmin[Name]>
) => ReturnType<StoreAdmin[Name]>;

/** The import needs a store that has never had to-dos. */
export class UsedStoreError extends PreconditionError {}

/** The file of the import is invalid, or has more to-dos than the store may have. */
export class InvalidFileError extends PreconditionError {}

export const tooManyTodos = (maxTodos: number): InvalidFileError =>
  new InvalidFileError(
    `the file has more than ${maxTodos} to-dos: raise the limit with --max-todos or TODO_MAX_TODOS`,
  );

export const hasKeys = (): PreconditionError =>
  new PreconditionError(
    "the store already has API keys: import into a store without API keys, or export without --with-keys",
  );
