import type { Database } from "bun:sqlite";
import type { Key, KeyStore, StoredKey } from "../../credential/key.ts";
import { Failure } from "../../failure.ts";
import { KeyUses } from "../key-uses.ts";
import { SqliteKeys } from "./keys.ts";
import type { WriterThread } from "./thread.ts";

/** The keys of a file that is being served: read here, written by the writer. */
export class ServedKeys implements KeyStore {
  readonly #database: Database;
  readonly #keys: SqliteKeys;
  readonly #writer: WriterThread;
  readonly #uses: KeyUses;

  constructor(database: Database, writer: WriterThread) {
    // A reader need not wait in WAL mode; if it must all the same, then not the whole server with it.
    database.run("PRAGMA busy_timeout = 0");
    this.#database = database;
    this.#keys = new SqliteKeys(database);
    this.#writer = writer;
    this.#uses = new KeyUses((uses) => writer.ask({ type: "touchKeys", uses }));
  }

  find(tokenHash: Uint8Array): StoredKey | undefined {
    return unlessUnavailable(() => this.#keys.find(tokenHash));
  }

  list(): Key[] {
    return unlessUnavailable(() => this.#keys.list()).map((key) => this.#uses.shown(key));
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
    this.#uses.note(id, usedAt);
  }

  async close(): Promise<void> {
    await this.#uses.flush();
    this.#database.close();
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
