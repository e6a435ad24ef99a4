import type { Database } from "bun:sqlite";
import { type BigIntStats, lstatSync } from "node:fs";
import { errorMessage, getErrno } from "../../error-message.ts";
import { assertIntact } from "./contents.ts";
import { isTemporary } from "./errors.ts";
import { type FileIdentity, isSame } from "./files.ts";
import { openDatabase } from "./open.ts";
import { type StoreRow, storeRow } from "./store-row.ts";
import { CheckpointGuard, Wal } from "./wal.ts";

/** What the writer has committed. */
export interface Committed {
  readonly id: string;
  readonly sequence: number;
  /** Commands that change API keys may have committed more. */
  readonly transactions: number;
}

/**
 * Notices when another program removes, replaces, overwrites or truncates the files of a store, because SQLite would go on
 * writing without an error. Never opens the lock, because closing a descriptor would drop SQLite's lock.
 */
export class FileGuard {
  readonly #path: string;
  readonly #lock: FileIdentity;
  readonly #wal: Wal;
  readonly #checkpointGuard: CheckpointGuard;
  /** The database as the last checkpoint left it. */
  #database: BigIntStats;

  /**
   * To be called when the writer has read the store, so that all files exist.
   * @param lock the identity of the lock file when it was locked
   * @param connection the connection of the writer
   */
  constructor(path: string, lock: FileIdentity, connection: Database) {
    this.#path = path;
    this.#lock = lock;
    this.#wal = new Wal(path);
    this.#checkpointGuard = new CheckpointGuard(path, this.#wal, connection);
    this.#database = stat(path);
  }

  /** The number of frames in the WAL. */
  get frameCount(): number {
    return this.#wal.frameCount;
  }

  /** Returns whether the database at the path is still the one that the writer has open. */
  hasDatabase(): boolean {
    return isSame(this.#database, find(this.#path));
  }

  /**
   * Throws if a file of the store is not at its path. Returns whether the database is as the last checkpoint left it, and the
   * WAL has all frames.
   */
  check(): boolean {
    this.#assertSameFiles();
    return this.#isDatabaseUnchanged() && this.#wal.hasAllFrames();
  }

  /**
   * Runs a checkpoint after a check. Returns false if another program has written to the database meanwhile.
   * @param move makes the checkpoint, and returns whether the whole WAL is in the database
   */
  checkpoint(move: () => boolean): boolean {
    const isOwn = this.#checkpointGuard.begin();
    // The time of the file shows what another program writes before the checkpoint and after it.
    if (!this.#isDatabaseUnchanged()) return false;
    const isComplete = move();
    this.#database = assertSame(this.#path, this.#database);
    return isOwn(isComplete);
  }

  /**
   * Reads the whole store through a new connection. Throws unless it has everything that the writer committed, also after a
   * crash. Returns the row of the store.
   */
  verify(committed: Committed): StoreRow {
    this.#assertSameFiles();
    const database = stat(this.#path);
    const row = this.#readBack(committed);
    // SQLite reads a WAL that has lost frames, but not after a crash.
    if (!this.#wal.hasAllFrames()) throw changedError(`${this.#path}-wal`, "it has lost changes");
    this.#database = database;
    return row;
  }

  close(): void {
    this.#wal.close();
    this.#checkpointGuard.close();
  }

  #assertSameFiles(): void {
    // Another server may have started without this lock. If it has written, the position of the store differs.
    assertSame(`${this.#path}-lock`, this.#lock);
    assertSame(`${this.#path}-shm`, this.#wal.indexIdentity);
    assertSame(`${this.#path}-wal`, this.#wal.identity);
    assertSame(this.#path, this.#database);
  }

  #isDatabaseUnchanged(): boolean {
    const now = assertSame(this.#path, this.#database);
    // Besides the size, the time of the last change shows a file that was overwritten by another of the same size.
    return now.size === this.#database.size && now.mtimeNs === this.#database.mtimeNs;
  }

  #readBack({ id, sequence, transactions }: Committed): StoreRow {
    try {
      // SQLite would delete the WAL of an empty database.
      if (stat(this.#path).size === 0n) throw new Error("it is empty");
      using database = openDatabase(this.#path, "readOnly");
      return database.transaction(() => {
        const row = storeRow(database);
        if (row.id !== id || Number(row.sequence) !== sequence || Number(row.transactions) < transactions)
          throw new Error("its last change is another one");
        // The position may be in the WAL while pages of the database are old.
        assertIntact(database);
        return row;
      })();
    } catch (error) {
      throw isTemporary(error)
        ? unreadableError(this.#path, error)
        : changedError(this.#path, errorMessage(error));
    }
  }
}

const changedError = (path: string, detail: string): Error =>
  new Error(`another program has changed ${path} (${detail})`);

const unreadableError = (path: string, cause: unknown): Error =>
  Object.assign(new Error(`${path} cannot be read (${errorMessage(cause)})`, { cause }), {
    code: getErrno(cause),
  });

/** Returns the state of a file. Throws if the file is not the expected one. */
function assertSame(path: string, expected: FileIdentity): BigIntStats {
  const found = find(path);
  if (found !== undefined && isSame(expected, found)) return found;
  throw new Error(`${path} was moved, removed or replaced`);
}

/** A symbolic link in the place of a file is another file, because the next start would look beside its target. */
const stat = (path: string): BigIntStats => lstatSync(path, { bigint: true });
const find = (path: string): BigIntStats | undefined =>
  lstatSync(path, { bigint: true, throwIfNoEntry: false });
