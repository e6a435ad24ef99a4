import type { Database, Statement } from "bun:sqlite";
import { existsSync } from "node:fs";
import { resolve } from "node:path";
import { type Key, type KeyStore, oldestKeptExpiry, type StoredKey } from "../../credential/key.ts";
import { type KeyRow, toKey, toStoredKey } from "../records/key-row.ts";
import type { KeyStoreHandle, OpenKeysOptions } from "../store.ts";
import { assertNotEmpty, connectShared } from "./connection.ts";
import { DigestSum, keyText } from "./digest.ts";
import { assertNotBehindMark, markNotWritten, markOf, writeMark } from "./mark.ts";
import { describeOpenError, openError } from "./open-error.ts";
import { hasOnlyWal } from "./open-file.ts";
import { StoreRowWriter, storeRow } from "./store-row.ts";

/**
 * Opens the API keys of a file that a server may be using. Throws an Error with the reason if it cannot, and a
 * StoreUnavailableError if the same call may succeed later.
 */
export function openSqliteKeys(
  path: string,
  { createIfMissing, onWarning = () => {} }: OpenKeysOptions,
): KeyStoreHandle {
  if (!createIfMissing && !existsSync(path) && !hasOnlyWal(path))
    throw new Error(`${resolve(path)} does not exist: check the path of the store`);
  try {
    assertNotBehindMark(path);
    if (!createIfMissing) assertNotEmpty(path);
    const database = connectShared(path);
    const onCommit = () => {
      try {
        writeMark(path, markOf(storeRow(database)));
      } catch (error) {
        onWarning(markNotWritten(error));
      }
    };
    return { keys: new SqliteKeys(database, onCommit), close: () => database.close() };
  } catch (cause) {
    throw openError(`${path}: ${describeOpenError(path, cause)}`, cause);
  }
}

/** The API keys of a file, through one connection. Every call sees the latest committed state. */
export class SqliteKeys implements KeyStore {
  readonly #database: Database;
  readonly #onCommit: (transactions: number) => void;
  readonly #find: Statement<KeyRow, [Uint8Array]>;
  readonly #storeRow: StoreRowWriter;

  /** @param onCommit called after each change of keys with the number of transactions of the store */
  constructor(database: Database, onCommit: (transactions: number) => void) {
    this.#database = database;
    this.#storeRow = new StoreRowWriter(database);
    this.#onCommit = onCommit;
    this.#find = database.query("SELECT * FROM keys WHERE token_hash = ?");
  }

  find(tokenHash: Uint8Array): StoredKey | undefined {
    const row = this.#find.get(tokenHash);
    return row === null ? undefined : toStoredKey(row);
  }

  list(): Key[] {
    return this.#database.query<KeyRow, []>("SELECT * FROM keys ORDER BY created_at, rowid").all().map(toKey);
  }

  insert(key: StoredKey): boolean {
    return this.#change((sum) => {
      const namesake = this.#database
        .query("SELECT 1 FROM keys WHERE name = ?1 AND coalesce(expires_at > ?2, TRUE)")
        .get(key.name, key.createdAt);
      if (namesake !== null) return false;
      this.#add(key, sum);
      return true;
    });
  }

  replace(id: string, expiresAt: number, successor: StoredKey): boolean {
    return this.#change((sum) => {
      const namesakes = "WHERE name = (SELECT name FROM keys WHERE id = ?1)";
      const before = this.#rows(`SELECT * FROM keys ${namesakes}`, id);
      if (before.length === 0) return false;
      for (const row of before) sum.subtract(textOf(row));
      const after = this.#rows(
        `UPDATE keys SET expires_at = min(coalesce(expires_at, ?2), ?2) ${namesakes} RETURNING *`,
        id,
        expiresAt,
      );
      for (const row of after) sum.add(textOf(row));
      this.#add(successor, sum);
      return true;
    });
  }

  delete(id: string): boolean {
    return this.#change((sum) => this.#delete("DELETE FROM keys WHERE id = ? RETURNING *", id, sum));
  }

  recordUse(id: string, usedAt: number): void {
    this.#database.query("UPDATE keys SET last_used_at = ?2 WHERE id = ?1").run(id, usedAt);
  }

  #add(key: StoredKey, sum: DigestSum): void {
    const { id, name, tokenHash, createdAt, expiresAt, lastUsedAt, lifetime, scope } = key;
    this.#database
      .query("INSERT INTO keys VALUES (?, ?, ?, ?, ?, ?, ?, ?)")
      .run(id, name, tokenHash, createdAt, expiresAt ?? null, lastUsedAt ?? null, lifetime ?? null, scope);
    sum.add(keyText(key));
    this.#delete(
      "DELETE FROM keys WHERE expires_at < ? RETURNING *",
      oldestKeptExpiry(this.list(), createdAt),
      sum,
    );
  }

  /** Returns whether a row was deleted. */
  #delete(sql: string, parameter: string | number, sum: DigestSum): boolean {
    const deleted = this.#rows(sql, parameter);
    for (const row of deleted) sum.subtract(textOf(row));
    return deleted.length > 0;
  }

  #rows(sql: string, ...parameters: (string | number)[]): KeyRow[] {
    return this.#database.query<KeyRow, (string | number)[]>(sql).all(...parameters);
  }

  /**
   * Runs a change in a transaction, with the row of `store`.
   * @param work returns whether it changed rows, and adds them to the sum
   */
  #change(work: (sum: DigestSum) => boolean): boolean {
    const transactions = this.#database
      .transaction(() => {
        const sum = new DigestSum();
        if (!work(sum)) return undefined;
        // Other connections change the row, too.
        this.#storeRow.forget();
        return this.#storeRow.update((row) => row, sum.value);
      })
      .immediate();
    if (transactions === undefined) return false;
    this.#onCommit(transactions);
    return true;
  }
}

const textOf = (row: KeyRow): string => keyText(toStoredKey(row));
