import type { Database, Statement } from "bun:sqlite";
import { existsSync } from "node:fs";
import { resolve } from "node:path";
import { EXPIRED_KEPT_MS, type Key, type KeyStore, type StoredKey } from "../../credential/key.ts";
import { type KeyRow, keyOf, storedKeyOf } from "../key-row.ts";
import type { OpenKeys } from "../store.ts";
import { connectBeside } from "./file.ts";

/**
 * Opens the keys of a file, beside a server that may be using it; throws an Error that says why they cannot be.
 * @param make whether a file that is not there is made
 */
export function openSqliteKeys(path: string, make: boolean): OpenKeys {
  if (!make && !existsSync(path)) throw new Error(`there is no such store: ${resolve(path)}`);
  try {
    const database = connectBeside(path);
    return { keys: new SqliteKeys(database), close: () => database.close() };
  } catch (cause) {
    throw new Error(`${path}: ${cause instanceof Error ? cause.message : cause}`, { cause });
  }
}

/** The keys of a file, on one connection to it. What others write to the file is seen at once. */
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

  touch(id: string, usedAt: number): void {
    this.#database.query("UPDATE keys SET last_used_at = ?2 WHERE id = ?1").run(id, usedAt);
  }

  #add({ id, name, tokenHash, createdAt, expiresAt, lastUsedAt, lifetime }: StoredKey): void {
    this.#database
      .query("INSERT INTO keys VALUES (?, ?, ?, ?, ?, ?, ?)")
      .run(id, name, tokenHash, createdAt, expiresAt ?? null, lastUsedAt ?? null, lifetime ?? null);
    this.#database.query("DELETE FROM keys WHERE expires_at <= ?").run(createdAt - EXPIRED_KEPT_MS);
  }

  #atomically<T>(work: () => T): T {
    return this.#database.transaction(work).immediate();
  }
}
