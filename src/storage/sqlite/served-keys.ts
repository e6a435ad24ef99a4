import type { Database } from "bun:sqlite";
import type { Key, KeyStore, StoredKey } from "../../credential/key.ts";
import { Failure } from "../../failure.ts";
import { SqliteKeys } from "./keys.ts";
import type { WriterThread } from "./thread.ts";

const USES_KEPT_BACK_MS = 60_000;

/** The keys of a file that is being served: read here, written by the writer. */
export class ServedKeys implements KeyStore {
  readonly #database: Database;
  readonly #keys: SqliteKeys;
  readonly #writer: WriterThread;
  /** When keys were used last, of what is not written yet. */
  #uses = new Map<string, number>();
  #timer: NodeJS.Timeout | undefined;

  constructor(database: Database, writer: WriterThread) {
    // A reader need not wait in WAL mode; if it must all the same, then not the whole server with it.
    database.run("PRAGMA busy_timeout = 0");
    this.#database = database;
    this.#keys = new SqliteKeys(database);
    this.#writer = writer;
  }

  find(tokenHash: Uint8Array): StoredKey | undefined {
    return unlessUnavailable(() => this.#keys.find(tokenHash));
  }

  list(): Key[] {
    const keys = unlessUnavailable(() => this.#keys.list());
    return keys.map((key) => {
      const lastUsedAt = this.#uses.get(key.id);
      return lastUsedAt === undefined ? key : { ...key, lastUsedAt };
    });
  }

  insert(key: StoredKey): Promise<boolean> {
    return this.#ask({ type: "insertKey", key });
  }

  replace(id: string, expiresAt: number, successor: StoredKey): Promise<boolean> {
    return this.#ask({ type: "replaceKey", id, expiresAt, successor });
  }

  delete(id: string): Promise<boolean> {
    return this.#ask({ type: "deleteKey", id });
  }

  touch(id: string, usedAt: number): void {
    this.#uses.set(id, usedAt);
    this.#timer ??= setTimeout(() => this.#writeUses(), USES_KEPT_BACK_MS).unref();
  }

  async close(): Promise<void> {
    await this.#writeUses();
    this.#database.close();
  }

  async #writeUses(): Promise<void> {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    const uses = this.#uses;
    if (uses.size === 0) return;
    this.#uses = new Map();
    try {
      await this.#writer.ask({ type: "touchKeys", uses });
    } catch {
      // They are a courtesy: kept for the next time.
      for (const [id, usedAt] of uses) if (!this.#uses.has(id)) this.touch(id, usedAt);
    }
  }

  #ask(request: Parameters<WriterThread["ask"]>[0]): Promise<boolean> {
    return this.#writer.ask(request).catch((cause) => {
      throw new Failure("store_unavailable", { cause });
    });
  }
}

function unlessUnavailable<T>(read: () => T): T {
  try {
    return read();
  } catch (cause) {
    throw new Failure("store_unavailable", { cause });
  }
}
