/** The client of the writer thread, and the requests that the thread serves. */
import type { StoredKey } from "../../credential/key.ts";
import type { KeyChange } from "../../credential/key-rules.ts";
import { WorkerThread } from "../../worker-thread.ts";
import type { IdempotencyRecord } from "../records/idempotency.ts";
import type { FileUsage } from "../store.ts";
import type { FileIdentity } from "./files.ts";

/** The changes of a batch of writes. */
export interface Commit {
  /** The sequence number before the first event. */
  readonly startSequence: number;
  /** The epoch of the events. */
  readonly epoch: string;
  /** The events, one per line, because one string is posted faster than many. */
  readonly events: string;
  /** The hashes of idempotency keys to delete, before the new records are added, because a new record may have the same key. */
  readonly removed: readonly string[];
  readonly idempotencyRecords: readonly IdempotencyRecord[];
}

/** What the writer thread opens. */
export interface WriterOptions {
  readonly path: string;
  /** The id of the store. */
  readonly id: string;
  /** The identity of the lock file when it was locked. */
  readonly lock: FileIdentity;
  readonly maxEvents: number;
}

/** A request on an open file. */
export type FileRequest =
  /** Checks the files, and whether another process has written. */
  | { readonly type: "checkFiles" }
  /** Commits a transaction that changes nothing. */
  | { readonly type: "checkWrites" }
  | { readonly type: "commit"; readonly commit: Commit }
  /** The server uses the awaited API keys of an earlier reply. */
  | { readonly type: "confirmKeys" }
  /** The value is whether the rules allow the change. */
  | { readonly type: "changeKeys"; readonly change: KeyChange };

export type WriterRequest =
  /** Opens the file, and checks its structure. */
  | { readonly type: "open"; readonly options: WriterOptions }
  | FileRequest
  /** Closes the file. SQLite moves its WAL to the database only if the files are right. */
  | { readonly type: "close"; readonly areRight: boolean };

/** All API keys, after a change. */
export interface ChangedKeys {
  readonly stored: readonly StoredKey[];
  /** Whether a command may wait until the server uses them. */
  readonly isAwaited: boolean;
}

/** The request is on disk. One that throws was rolled back; after a failed fsync and a crash, the next start may still find it. */
export interface WriterReply {
  /** The result of the request; true if it has none. */
  readonly value: boolean;
  readonly warning: string | undefined;
  /** The API keys, if they may have changed since the last reply. */
  readonly keys: ChangedKeys | undefined;
  /** Only after `checkFiles`. */
  readonly usage: FileUsage | undefined;
}

/** The client of the writer thread. When the thread has exited, all requests reject. */
export class WriterClient {
  readonly #thread = new WorkerThread<WriterRequest, WriterReply>(
    new URL("./writer.worker.ts", import.meta.url),
  );
  readonly #onWarning: (message: string) => void;
  #lastWarning: string | undefined;
  /** As of the last `checkFiles`. */
  usage: FileUsage | undefined;
  /** The API keys, as of the last request. */
  keys: readonly StoredKey[] = [];
  /** Called with the API keys whenever they have changed, before the request that noticed it resolves. */
  onKeys: (keys: readonly StoredKey[]) => void = () => {};

  private constructor(onWarning: (message: string) => void) {
    this.#onWarning = onWarning;
  }

  /** Starts the writer thread, which first checks the structure of the file. Throws an error of damage if it is damaged. */
  static async start(options: WriterOptions, onWarning: (message: string) => void): Promise<WriterClient> {
    const client = new WriterClient(onWarning);
    try {
      await client.request({ type: "open", options });
      return client;
    } catch (error) {
      client.#thread.terminate();
      throw error;
    }
  }

  /** Resolves when the request is on disk. Requests run in the order of the calls. */
  async request(request: WriterRequest): Promise<boolean> {
    const { value, warning, keys, usage } = await this.#thread.request(request);
    this.usage = usage ?? this.usage;
    if (keys !== undefined) {
      this.keys = keys.stored;
      this.onKeys(keys.stored);
      // If it fails, the thread has exited.
      if (keys.isAwaited) this.request({ type: "confirmKeys" }).catch(() => {});
    }
    if (warning !== undefined && warning !== this.#lastWarning) this.#onWarning(warning);
    this.#lastWarning = warning;
    return value;
  }

  /** Returns how long the oldest request has waited for its reply, in milliseconds. */
  waitingMs(): number {
    return this.#thread.waitingMs();
  }

  async close(areRight: boolean): Promise<void> {
    try {
      await this.request({ type: "close", areRight });
    } finally {
      this.#thread.terminate();
    }
  }
}
