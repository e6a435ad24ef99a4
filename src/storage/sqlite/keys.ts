import type { Database, Statement } from "bun:sqlite";
import { existsSync } from "node:fs";
import { resolve } from "node:path";
import { type Key, type KeyStore, oldestKeptExpiry, type StoredKey } from "../../credential/key.ts";
import { ServiceError } from "../../error.ts";
import { type KeyRow, toStoredKey, toValues } from "../records/key-row.ts";
import { KeyUsage } from "../records/key-usage.ts";
import type { KeyStoreHandle, OpenKeysOptions } from "../store.ts";
import { Checksum, keyText } from "./checksum.ts";
import { openError } from "./errors.ts";
import { hasOnlyWal } from "./files.ts";
import { assertNotBehindMark, toMark, writeMark } from "./mark.ts";
import { openDatabase, openExisting } from "./open.ts";
import { storeRow, updateStoreRow } from "./store-row.ts";
import { describeOpenError } from "./ways-out.ts";

/**
 * Opens the API keys of a file that a server may be using. Throws an Error with the reason if it cannot, and a
 * StoreUnavailableError if the same call may succeed later.
 */
export function openSqliteKeys(
  path: string,
  { createIfMissing, onCreated = () => {}, onWarning = () => {} }: OpenKeysOptions,
): KeyStoreHandle {
  const isMissing = !existsSync(path) && !hasOnlyWal(path);
  if (!createIfMissing && isMissing)
    throw new Error(`${resolve(path)} does not exist: check the path of the store`);
  try {
    assertNotBehindMark(path);
    const database = createIfMissing ? openDatabase(path, "shared") : openExisting(path);
    if (isMissing) onCreated(`sqlite:${path}`);
    const onCommit = () => {
      // In a write transaction, because another process that commits meanwhile would get the lower mark.
      const problem = database.transaction(() => writeMark(path, toMark(storeRow(database)))).immediate();
      if (problem !== undefined) onWarning(problem);
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

  /** @param onCommit called after each change of keys with the number of transactions of the store */
  constructor(database: Database, onCommit: (transactions: number) => void) {
    this.#database = database;
    this.#onCommit = onCommit;
    this.#find = database.query("SELECT * FROM keys WHERE token_hash = ?");
  }

  find(tokenHash: Uint8Array): StoredKey | undefined {
    const row = this.#find.get(tokenHash);
    return row === null ? undefined : toStoredKey(row);
  }

  list(): Key[] {
    return readStoredKeys(this.#database).map(({ tokenHash: _, ...key }) => key);
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
      const namesakes = "name = (SELECT name FROM keys WHERE id = ?1)";
      const family = `WHERE ${namesakes} OR parent IN (SELECT 'key:' || id FROM keys WHERE ${namesakes})`;
      const before = this.#rows(`SELECT * FROM keys ${family}`, id);
      if (before.length === 0) return false;
      for (const row of before) sum.subtract(rowText(row));
      const after = this.#rows(
        `UPDATE keys SET expires_at = min(coalesce(expires_at, ?2), ?2) ${family} RETURNING *`,
        id,
        expiresAt,
      );
      for (const row of after) sum.add(rowText(row));
      this.#add(successor, sum);
      return true;
    });
  }

  delete(id: string): boolean {
    return this.#change((sum) =>
      this.#delete("DELETE FROM keys WHERE id = ?1 OR parent = 'key:' || ?1 RETURNING *", id, sum),
    );
  }

  /** Returns whether the key exists. */
  recordUse(id: string, usedAt: number): boolean {
    return this.#database.query(RECORD_USE).run(id, usedAt).changes > 0;
  }

  #add(key: StoredKey, sum: Checksum): void {
    insertStoredKey(this.#database, key);
    sum.add(keyText(key));
    this.#delete(
      "DELETE FROM keys WHERE expires_at < ? RETURNING *",
      oldestKeptExpiry(this.list(), key.createdAt),
      sum,
    );
  }

  /** Returns whether a row was deleted. */
  #delete(sql: string, parameter: string | number, sum: Checksum): boolean {
    const deleted = this.#rows(sql, parameter);
    for (const row of deleted) sum.subtract(rowText(row));
    return deleted.length > 0;
  }

  #rows(sql: string, ...parameters: (string | number)[]): KeyRow[] {
    return this.#database.query<KeyRow, (string | number)[]>(sql).all(...parameters);
  }

  /**
   * Runs a change in a transaction, with the row of `store`.
   * @param work returns whether it changed rows, and adds them to the sum
   */
  #change(work: (sum: Checksum) => boolean): boolean {
    const transactions = this.#database
      .transaction(() => {
        const sum = new Checksum();
        if (!work(sum)) return undefined;
        return updateStoreRow(this.#database, sum);
      })
      .immediate();
    if (transactions === undefined) return false;
    this.#onCommit(transactions);
    return true;
  }
}

/** The changes of API keys that the writer thread makes for its server. */
export type KeyRequest =
  | { readonly type: "insertKey"; readonly key: StoredKey }
  | {
      readonly type: "replaceKey";
      readonly id: string;
      readonly expiresAt: number;
      readonly successor: StoredKey;
    }
  | { readonly type: "deleteKey"; readonly id: string }
  | { readonly type: "recordKeyUses"; readonly uses: ReadonlyMap<string, number> };

/** The API keys of a file, for its server. Reads use this connection; the writer thread does the writes. */
export class ServerKeys implements KeyStore {
  readonly #database: Database;
  readonly #keys: SqliteKeys;
  readonly #write: (request: KeyRequest) => Promise<boolean>;
  readonly #onWrite: (failure: unknown) => void;
  readonly #uses: KeyUsage;
  /** The keys by their token's hash. */
  #copy: ReadonlyMap<string, StoredKey>;
  #usesCopy = false;

  /**
   * @param database a read-only connection
   * @param write sends a request to the writer thread
   * @param onWrite called after each write, with the cause of a failure
   */
  constructor(
    database: Database,
    write: (request: KeyRequest) => Promise<boolean>,
    onWrite: (failure: unknown) => void,
  ) {
    this.#onWrite = onWrite;
    // Readers rarely wait in WAL mode. If one must, it fails instead of blocking the event loop.
    database.run("PRAGMA busy_timeout = 0");
    this.#database = database;
    this.#keys = new SqliteKeys(database, () => {});
    this.#write = write;
    this.#copy = readCopy(database);
    this.#uses = new KeyUsage((uses) => write({ type: "recordKeyUses", uses }));
  }

  find(tokenHash: Uint8Array): StoredKey | undefined {
    const copied = this.#copy.get(mapKey(tokenHash));
    if (this.#usesCopy) return copied;
    return unlessUnavailable(() => {
      const found = this.#keys.find(tokenHash);
      // A command has changed the keys. What it revoked must not be valid again if the files become wrong.
      if (found?.id !== copied?.id || found?.expiresAt !== copied?.expiresAt) this.useFiles();
      return found;
    });
  }

  list(): Key[] {
    if (!this.#usesCopy) unlessUnavailable(() => this.useFiles());
    return this.copy.map(({ tokenHash: _, ...key }) => this.#uses.withLatest(key));
  }

  /** The API keys, with the hashes of their tokens, when the files were right for the last time. */
  get copy(): readonly StoredKey[] {
    return [...this.#copy.values()];
  }

  /** Reads the API keys from the files, which are right. */
  useFiles(): void {
    this.#copy = readCopy(this.#database);
    this.#usesCopy = false;
  }

  /** Uses the API keys of the last call of `useFiles`, because the files are wrong. */
  useCopy(): void {
    this.#usesCopy = true;
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

  async #request(request: KeyRequest): Promise<boolean> {
    let result: boolean;
    try {
      result = await this.#write(request);
    } catch (cause) {
      this.#onWrite(cause);
      throw new ServiceError("store_unavailable", { cause });
    }
    try {
      this.useFiles();
    } catch {
      // The write is stored, so it must not fail. The next check of the files reads the API keys again.
    }
    this.#onWrite(undefined);
    return result;
  }
}

const mapKey = (tokenHash: Uint8Array): string => Buffer.from(tokenHash).toString("base64");

const readCopy = (database: Database): ReadonlyMap<string, StoredKey> =>
  new Map(readStoredKeys(database).map((key) => [mapKey(key.tokenHash), key]));

function unlessUnavailable<T>(read: () => T): T {
  try {
    return read();
  } catch (cause) {
    throw new ServiceError("store_unavailable", { cause });
  }
}

/** Returns the API keys from the oldest to the newest. */
export const readStoredKeys = (database: Database): StoredKey[] =>
  database.query<KeyRow, []>("SELECT * FROM keys ORDER BY created_at, rowid").all().map(toStoredKey);

/** Inserts an API key, and nothing else. */
export function insertStoredKey(database: Database, key: StoredKey): void {
  database.query("INSERT INTO keys VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)").run(...toValues(key));
}

/** A use renews the key of a browser, but not beyond the expiry of its parent. */
const RECORD_USE = `
  UPDATE keys SET last_used_at = ?2, expires_at = CASE WHEN parent IS NULL OR lifetime IS NULL THEN expires_at
    ELSE min(?2 + lifetime, coalesce((SELECT p.expires_at FROM keys p WHERE keys.parent = 'key:' || p.id), ?2 + lifetime)) END
  WHERE id = ?1`;

const rowText = (row: KeyRow): string => keyText(toStoredKey(row));
