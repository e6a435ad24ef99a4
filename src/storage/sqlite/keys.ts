import type { Database, Statement } from "bun:sqlite";
import { existsSync } from "node:fs";
import { resolve } from "node:path";
import { EXPIRED_RETENTION_MS, type Key, type KeyStore, type StoredKey } from "../../credential/key.ts";
import { type KeyRow, keyOf, storedKeyOf } from "../records/key-row.ts";
import type { KeyStoreHandle } from "../store.ts";
import { connectShared } from "./connection.ts";
import { describeOpenError } from "./writable.ts";

/**
 * Opens the API keys of a file that a server may be using. Throws an Error with the reason if it cannot.
 * @param make whether to create a missing file
 */
export function openSqliteKeys(path: string, make: boolean): KeyStoreHandle {
  if (!make && !existsSync(path))
    throw new Error(`${resolve(path)} does not exist: check the path of the store`);
  try {
    const database = connectShared(path);
    return { keys: new SqliteKeys(database), close: () => database.close() };
  } catch (cause) {
    throw new Error(`${path}: ${describeOpenError(path, cause)}`, { cause });
  }
}

/** The API keys of a file, through one connection. Every call sees the latest committed state. */
export class SqliteKeys implements KeyStore {
  readonly #database: Database;
  readonly #find: Statement<KeyRow, [Uint8Array]>;

  constructor(database: Database) {
    this.#database = database;
    this.#find = database.query("SELECT * FROM keys WHERE token_hash = ?");
  }

  find(tokenHash: Uint8Array): StoredKey | undefined {
    const row = this.#find.get(tokenHash);
    return row === null ? undefined : storedKeyOf(row);
  }

  list(): Key[] {
    return this.#database.query<KeyRow, []>("SELECT * FROM keys ORDER BY created_at, rowid").all().map(keyOf);
  }

  insert(key: StoredKey): boolean {
    return this.#atomically(() => {
      const namesake = this.#database
        .query("SELECT 1 FROM keys WHERE name = ?1 AND coalesce(expires_at > ?2, TRUE)")
        .get(key.name, key.createdAt);
      if (namesake !== null) return false;
      this.#add(key);
      return true;
    });
  }

  replace(id: string, expiresAt: number, successor: StoredKey): boolean {
    return this.#atomically(() => {
      const { changes } = this.#database
        .query(
          `UPDATE keys SET expires_at = min(coalesce(expires_at, ?2), ?2)
           WHERE name = (SELECT name FROM keys WHERE id = ?1)`,
        )
        .run(id, expiresAt);
      if (changes === 0) return false;
      this.#add(successor);
      return true;
    });
  }

  delete(id: string): boolean {
    return this.#database.query("DELETE FROM keys WHERE id = ?").run(id).changes > 0;
  }

  recordUse(id: string, usedAt: number): void {
    this.#database.query("UPDATE keys SET last_used_at = ?2 WHERE id = ?1").run(id, usedAt);
  }

  #add({ id, name, tokenHash, createdAt, expiresAt, lastUsedAt, lifetime }: StoredKey): void {
    this.#database
      .query("INSERT INTO keys VALUES (?, ?, ?, ?, ?, ?, ?)")
      .run(id, name, tokenHash, createdAt, expiresAt ?? null, lastUsedAt ?? null, lifetime ?? null);
    this.#database.query("DELETE FROM keys WHERE expires_at <= ?").run(createdAt - EXPIRED_RETENTION_MS);
  }

  #atomically<T>(work: () => T): T {
    return this.#database.transaction(work).immediate();
  }
}
