import type { Database } from "bun:sqlite";
import { existsSync } from "node:fs";
import { resolve } from "node:path";
import type { Key, KeyStore, StoredKey } from "../../credential/key.ts";
import { decide, type KeyChange } from "../../credential/key-rules.ts";
import { ChangingKeys, KeyTable } from "../records/key-table.ts";
import { KeyUsage } from "../records/key-usage.ts";
import type { KeyStoreHandle, OpenKeysOptions } from "../store.ts";
import { Checksum, keyText } from "./checksum.ts";
import { describeOpenError } from "./diagnosis.ts";
import { openError } from "./errors.ts";
import { hasOnlyWal, isSame, statRegularFile } from "./files.ts";
import { isServed } from "./lock.ts";
import { assertNotBehindMark, readMark, toMark, writeMark } from "./mark.ts";
import { openDatabase, openExisting } from "./open.ts";
import { putStoredKey, readStoredKeys } from "./rows.ts";
import { storeRow, updateStoreRow } from "./store-row.ts";

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
    const identity = statRegularFile(path);
    const keys = new FileKeys(database);
    const close = async () => {
      using _ = database;
      if (keys.transactions === 0) return;
      const isReplaced = (): boolean => identity === undefined || !isSame(identity, statRegularFile(path));
      await confirm(path, database, keys.transactions, isReplaced, onWarning);
    };
    return { keys, close };
  } catch (cause) {
    throw openError(`${path}: ${describeOpenError(path, cause)}`, cause);
  }
}

const CONFIRM_MS = 5000;
const POLL_MS = 20;

/**
 * Waits until the mark says that the server uses the changes of a command, if one answers requests. Throws an Error if it does
 * not in time, or if the store was replaced. Otherwise, writes the mark. A server that is starting reads the API keys later.
 */
async function confirm(
  path: string,
  database: Database,
  transactions: number,
  isReplaced: () => boolean,
  onWarning: (message: string) => void,
): Promise<void> {
  const deadline = performance.now() + CONFIRM_MS;
  while (isServed(path)) {
    const mark = readMark(path);
    if (typeof mark !== "string" && mark.transactions >= transactions) return;
    if (performance.now() > deadline)
      throw new Error(
        `the change is stored, but the server has not confirmed it within ${CONFIRM_MS / 1000} seconds: it holds when the server answers again, or after a restart`,
      );
    await Bun.sleep(POLL_MS);
  }
  if (isReplaced()) throw new Error(`${path} was replaced while the command ran: run it again`);
  // In a write transaction, because another process that commits meanwhile would get the lower mark.
  const problem = database.transaction(() => writeMark(path, toMark(storeRow(database)))).immediate();
  if (problem !== undefined) onWarning(problem);
}

/** The API keys of a file, for a command. Every call sees the latest committed state. */
class FileKeys extends ChangingKeys implements KeyStore {
  readonly #database: Database;
  /** The number of transactions of the store after the last change; 0 before the first one. */
  transactions = 0;

  constructor(database: Database) {
    super();
    this.#database = database;
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
    const transactions = this.#database.transaction(() => changeKeys(this.#database, change)).immediate();
    if (transactions === undefined) return false;
    this.transactions = Math.max(this.transactions, transactions);
    return true;
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

/** The API keys of a file, for its server. They are in memory, so that no request waits for the disk. */
export class ServerKeys extends ChangingKeys implements KeyStore {
  readonly #write: (change: KeyChange) => Promise<boolean>;
  readonly #uses: KeyUsage;
  #table: KeyTable;

  /** @param write sends a change to the writer thread, which decides it; `update` is called before it resolves */
  constructor(stored: readonly StoredKey[], write: (change: KeyChange) => Promise<boolean>) {
    super();
    this.#write = write;
    this.#table = new KeyTable(stored);
    this.#uses = new KeyUsage((uses) => write({ type: "recordUses", uses }));
  }

  find(tokenHash: Uint8Array): StoredKey | undefined {
    return this.#table.find(tokenHash);
  }

  list(): Key[] {
    return this.#table.list().map((key) => this.#uses.withLatest(key));
  }

  /** The API keys with the hashes of their tokens. */
  get stored(): readonly StoredKey[] {
    return this.#table.stored();
  }

  /** Replaces all keys, because this server or a command has changed them. */
  update(stored: readonly StoredKey[]): void {
    this.#table = new KeyTable(stored);
  }

  recordUse(id: string, usedAt: number): void {
    this.#uses.record(id, usedAt);
  }

  /** Writes the uses that are not written yet. */
  flush(): Promise<void> {
    return this.#uses.flush();
  }

  protected change(change: KeyChange): Promise<boolean> {
    return this.#write(change);
  }
}
