import type { Database } from "bun:sqlite";
import { existsSync } from "node:fs";
import { resolve } from "node:path";
import type { Key, KeyStore, StoredKey } from "../../credential/key.ts";
import { decide, type KeyChange } from "../../credential/key-rules.ts";
import { ServiceError } from "../../error.ts";
import { ChangingKeys } from "../records/changing-keys.ts";
import { type KeyRow, toStoredKey } from "../records/key-row.ts";
import { KeyTable } from "../records/key-table.ts";
import { KeyUsage } from "../records/key-usage.ts";
import type { KeyStoreHandle, OpenKeysOptions } from "../store.ts";
import { Checksum, keyText } from "./checksum.ts";
import { openError } from "./errors.ts";
import { hasOnlyWal } from "./files.ts";
import { assertNotBehindMark, toMark, writeMark } from "./mark.ts";
import { openDatabase, openExisting } from "./open.ts";
import { putStoredKey, readStoredKeys } from "./rows.ts";
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
    return { keys: new FileKeys(database, onCommit), close: () => database.close() };
  } catch (cause) {
    throw openError(`${path}: ${describeOpenError(path, cause)}`, cause);
  }
}

/** The API keys of a file, for a command. Every call sees the latest committed state. */
class FileKeys extends ChangingKeys implements KeyStore {
  readonly #database: Database;
  readonly #onCommit: () => void;

  /** @param onCommit called after each change */
  constructor(database: Database, onCommit: () => void) {
    super();
    this.#database = database;
    this.#onCommit = onCommit;
  }

  find(tokenHash: Uint8Array): StoredKey | undefined {
    return this.#read().find(tokenHash);
  }

  list(): Key[] {
    return this.#read().list();
  }

  recordUse(id: string, usedAt: number): void {
    this.change({ type: "recordUses", uses: new Map([[id, usedAt]]) });
  }

  protected change(change: KeyChange): boolean {
    const isAllowed = this.#database.transaction(() => changeKeys(this.#database, change)).immediate();
    if (isAllowed !== undefined) this.#onCommit();
    return isAllowed !== undefined;
  }

  #read(): KeyTable {
    return new KeyTable(readStoredKeys(this.#database));
  }
}

/**
 * Makes a change in the current transaction. Returns the number of transactions of the store, this one included; `undefined`
 * if the rules do not allow the change. Uses do not count as a transaction.
 */
export function changeKeys(database: Database, change: KeyChange): number | undefined {
  const before = new Map(readStoredKeys(database).map((key) => [key.id, key]));
  const difference = decide(before, change);
  if (difference === undefined) return undefined;
  const sum = new Checksum();
  const forget = (id: string): void => {
    const key = before.get(id);
    if (key !== undefined) sum.subtract(keyText(key));
  };
  for (const id of difference.remove) {
    forget(id);
    database.query("DELETE FROM keys WHERE id = ?").run(id);
  }
  for (const key of difference.put) {
    forget(key.id);
    sum.add(keyText(key));
    putStoredKey(database, key);
  }
  return change.type === "recordUses" ? 0 : updateStoreRow(database, sum);
}

/** The API keys of a file, for its server. Reads use this connection; the writer thread does the writes. */
export class ServerKeys extends ChangingKeys implements KeyStore {
  readonly #database: Database;
  readonly #write: (change: KeyChange) => Promise<boolean>;
  readonly #onWrite: (failure: unknown) => void;
  readonly #uses: KeyUsage;
  /** The keys when the files were right for the last time. */
  #copy: KeyTable;
  #usesCopy = false;

  /**
   * @param database a read-only connection
   * @param write sends a change to the writer thread
   * @param onWrite called after each write, with the cause of a failure
   */
  constructor(
    database: Database,
    write: (change: KeyChange) => Promise<boolean>,
    onWrite: (failure: unknown) => void,
  ) {
    super();
    this.#onWrite = onWrite;
    // Readers rarely wait in WAL mode. If one must, it fails instead of blocking the event loop.
    database.run("PRAGMA busy_timeout = 0");
    this.#database = database;
    this.#write = write;
    this.#copy = new KeyTable(readStoredKeys(database));
    this.#uses = new KeyUsage((uses) => write({ type: "recordUses", uses }));
  }

  find(tokenHash: Uint8Array): StoredKey | undefined {
    const copied = this.#copy.find(tokenHash);
    if (this.#usesCopy) return copied;
    return unlessUnavailable(() => {
      const row = this.#database
        .query<KeyRow, [Uint8Array]>("SELECT * FROM keys WHERE token_hash = ?")
        .get(tokenHash);
      const found = row === null ? undefined : toStoredKey(row);
      // A command has changed the keys. What it revoked must not be valid again if the files become wrong.
      if (found?.id !== copied?.id || found?.expiresAt !== copied?.expiresAt) this.useFiles();
      return found;
    });
  }

  list(): Key[] {
    if (!this.#usesCopy) unlessUnavailable(() => this.useFiles());
    return this.#copy.list().map((key) => this.#uses.withLatest(key));
  }

  /** The API keys, with the hashes of their tokens, when the files were right for the last time. */
  get copy(): readonly StoredKey[] {
    return this.#copy.stored();
  }

  /** Reads the API keys from the files, which are right. */
  useFiles(): void {
    this.#copy = new KeyTable(readStoredKeys(this.#database));
    this.#usesCopy = false;
  }

  /** Uses the API keys of the last call of `useFiles`, because the files are wrong. */
  useCopy(): void {
    this.#usesCopy = true;
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

  protected async change(change: KeyChange): Promise<boolean> {
    let isAllowed: boolean;
    try {
      isAllowed = await this.#write(change);
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
    return isAllowed;
  }
}

function unlessUnavailable<T>(read: () => T): T {
  try {
    return read();
  } catch (cause) {
    throw new ServiceError("store_unavailable", { cause });
  }
}
