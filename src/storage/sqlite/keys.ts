import type { Database } from "bun:sqlite";
import { existsSync, statSync } from "node:fs";
import { resolve } from "node:path";
import type { StoredKey } from "../../credential/key.ts";
import type { KeyChange } from "../../credential/key-rules.ts";
import { type KeySource, KeyTable, ServedKeys } from "../records/keys.ts";
import type { KeyStoreHandle, OpenKeysOptions } from "../store.ts";
import { createDatabase, openDatabase, openError } from "./database.ts";
import { readMark, writeMark } from "./file-watch.ts";
import { assertWritable, hasWal } from "./files.ts";
import { isLocked } from "./lock.ts";
import { assertIntact, changeKeys, readCounters, readKeys, type StoredCounters } from "./rows.ts";

/** Longer than a start with ten million to-dos. */
const CONFIRM_SECONDS = 10;
const POLL_MS = 20;

/**
 * Opens the API keys of a file that a server may be using. Throws an Error with the reason if it cannot, and a
 * StoreUnavailableError if the same call may succeed later.
 */
export function openSqliteKeys(
  path: string,
  { createIfMissing, onCreated }: OpenKeysOptions,
): KeyStoreHandle {
  if (!createIfMissing && !existsSync(path) && !hasWal(path))
    throw new Error(`${resolve(path)} does not exist: check the path of the store`);
  const isMissing = !existsSync(path);
  // A server has read the store, and watches its files.
  const readBefore = isLocked(path) ? readCounters : assertIntact;
  const { database, isNew } = openToChange(path, createIfMissing ? "create" : "refuse", readBefore);
  if (isNew && isMissing) onCreated?.(`sqlite:${path}`);
  const source = new FileKeys(database);
  const keys = new ServedKeys(source);
  const { ino } = statSync(path, { bigint: true });
  const isReplaced = (): boolean => statSync(path, { bigint: true, throwIfNoEntry: false })?.ino !== ino;
  return {
    keys,
    close: () => keys.flush().then(() => confirm(path, database, source.lastChange, isReplaced)),
  };
}

/**
 * Opens a store that a command changes. Throws if it has lost changes.
 * @param missing what to do with a missing store
 * @param readBefore reads the counters before the store is opened to be changed, and throws if the store is damaged
 */
export function openToChange(
  path: string,
  missing: "create" | "refuse",
  readBefore: (database: Database) => StoredCounters,
): { readonly database: Database; readonly isNew: boolean } {
  try {
    assertWritable(path);
    const compareMark = readMark(path);
    const isNew = missing === "create" && createDatabase(path);
    if (!isNew) {
      // A connection that writes would move a WAL to a damaged or another database when it closes.
      using reader = openDatabase(path, "read");
      compareMark(readBefore(reader));
    }
    return { database: openDatabase(path, "write"), isNew };
  } catch (cause) {
    throw openError(path, cause);
  }
}

/**
 * Waits until a running server uses the last change of a command. Throws an Error that says when it holds if that takes too long, and
 * if the store was replaced.
 */
async function confirm(
  path: string,
  database: Database,
  change: bigint | undefined,
  isReplaced: () => boolean,
): Promise<void> {
  using _ = database;
  if (change === undefined) return;
  const deadline = performance.now() + CONFIRM_SECONDS * 1000;
  while (isLocked(path) && readCounters(database).keys_used < change) {
    if (performance.now() > deadline)
      throw new Error(
        `the change is stored, but the server has not confirmed it within ${CONFIRM_SECONDS} seconds: it holds when the server answers again, or after a restart`,
      );
    await Bun.sleep(POLL_MS);
  }
  if (isReplaced()) throw new Error(`${path} was replaced while the command ran: run it again`);
  // In a transaction, because a server that commits meanwhile writes a higher mark.
  database.transaction(() => writeMark(path, readCounters(database))).immediate();
}

/** The API keys of a file, for a command. Every call sees the latest committed state. */
class FileKeys implements KeySource {
  readonly #database: Database;
  /** The number of the last change. */
  lastChange: bigint | undefined;

  constructor(database: Database) {
    this.#database = database;
  }

  find(tokenHash: Uint8Array): StoredKey | undefined {
    return new KeyTable(this.stored()).find(tokenHash);
  }

  stored(): StoredKey[] {
    return readKeys(this.#database);
  }

  change(change: KeyChange): boolean {
    const number = this.#database.transaction(() => changeKeys(this.#database, change)).immediate();
    this.lastChange = number ?? this.lastChange;
    return number !== undefined;
  }
}
