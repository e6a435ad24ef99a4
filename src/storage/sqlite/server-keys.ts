import type { Database } from "bun:sqlite";
import type { Key, KeyStore, StoredKey } from "../../credential/key.ts";
import { ServiceError } from "../../error.ts";
import { KeyUsage } from "../records/key-usage.ts";
import { SqliteKeys } from "./keys.ts";
import type { WriterClient } from "./writer-client.ts";

/** The API keys of a file, for its server. Reads use this connection; the writer thread does the writes. */
export class ServerKeys implements KeyStore {
  readonly #database: Database;
  readonly #keys: SqliteKeys;
  readonly #writer: WriterClient;
  readonly #uses: KeyUsage;

  /** @param database a read-only connection */
  constructor(database: Database, writer: WriterClient) {
    // Readers rarely wait in WAL mode. If one must, it fails instead of blocking the event loop.
    database.run("PRAGMA busy_timeout = 0");
    this.#database = database;
    this.#keys = new SqliteKeys(database, () => {});
    this.#writer = writer;
    this.#uses = new KeyUsage((uses) => writer.request({ type: "recordKeyUses", uses }));
  }

  find(tokenHash: Uint8Array): StoredKey | undefined {
    return unlessUnavailable(() => this.#keys.find(tokenHash));
  }

  list(): Key[] {
    return unlessUnavailable(() => this.#keys.list()).map((key) => this.#uses.withLatest(key));
  }

  insert(key: StoredKey): Promise<boolean> {
    return this.#request({ type: "insertKey", key });
  }

  replace(id: string, expiresAt: number, successor: StoredKey): Promise<boolean> {
    return this.#request({ type: "replaceKey", id, expiresAt, successor });
  }

  delete(id: string): Promise<boolean> {
    return this.#request({ type: "deleteKey", id });
  }

  recordUse(id: string, usedAt: number): void {
    this.#uses.record(id, usedAt);
  }

  /** Writes the uses that are not written yet. */
  flush(): Promise<void> {
    return this.#uses.flush();
  }

  close(): void {
    this.#database.close();
  }

  #request(request: Parameters<WriterClient["request"]>[0]): Promise<boolean> {
    return this.#writer.request(request).catch((cause) => {
      throw new ServiceError("store_unavailable", { cause });
    });
  }
}

function unlessUnavailable<T>(read: () => T): T {
  try {
    return read();
  } catch (cause) {
    throw new ServiceError("store_unavailable", { cause });
  }
}
