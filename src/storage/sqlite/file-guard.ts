import type { Database } from "bun:sqlite";
import { type BigIntStats, lstatSync } from "node:fs";
import { errorMessage, getErrno } from "../../error-message.ts";
import { CheckpointGuard } from "./checkpoint.ts";
import { assertIntact } from "./contents.ts";
import { isTemporary } from "./errors.ts";
import { type FileIdentity, isSame } from "./files.ts";
import { BUSY_TIMEOUT_MS, openDatabase } from "./open.ts";
import { type StoreRow, storeRow } from "./store-row.ts";
import { type Frames, hasFrames, NO_FRAMES, WalIndex } from "./wal.ts";

/** Longer than a command that changes API keys takes. */
const VERIFY_TIMEOUT_MS = 1000;

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
  readonly #wal: FileIdentity;
  readonly #index: WalIndex;
  /** The database as the last checkpoint left it. */
  #database: BigIntStats;
  /** The frames of the WAL that the last check found. */
  #frames: Frames = NO_FRAMES;
  /** The pages in these frames, with the latest frame of each. */
  readonly #pages = new Map<number, number>();
  readonly #checkpointGuard: CheckpointGuard;

  /**
   * To be called when the writer has read the store, so that all files exist.
   * @param lock the identity of the lock file when it was locked
   * @param connection the connection of the writer
   */
  constructor(path: string, lock: FileIdentity, connection: Database) {
    this.#path = path;
    this.#lock = lock;
    this.#wal = stat(`${path}-wal`);
    this.#index = new WalIndex(`${path}-shm`);
    this.#database = stat(path);
    this.#checkpointGuard = new CheckpointGuard(path, connection);
  }

  /** The number of frames in the WAL. */
  get frameCount(): number {
    return this.#index.read().count;
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
    // Another server may have started without this lock. If it has written, the position of the store differs.
    assertSame(`${this.#path}-lock`, this.#lock);
    assertSame(`${this.#path}-shm`, this.#index.identity);
    assertSame(`${this.#path}-wal`, this.#wal);
    return this.#isDatabaseUnchanged() && this.#hasFrames();
  }

  /** Returns whether the WAL was removed, but SQLite, which still has it open, can move it to the database. */
  hasOnlyLostWal(): boolean {
    return find(`${this.#path}-wal`) === undefined && this.#isDatabaseUnchanged();
  }

  /**
   * Runs a checkpoint after a check. Returns false if another program has written to the database meanwhile.
   * @param move makes the checkpoint, and returns whether the whole WAL is in the database
   */
  checkpoint(move: () => boolean): boolean {
    const isOwn = this.#checkpointGuard.begin(this.#pages);
    // The time of the file shows what another program writes before the checkpoint and after it.
    if (!this.#isDatabaseUnchanged()) return false;
    const isComplete = move();
    this.#database = assertSame(this.#path, this.#database);
    return isOwn(isComplete);
  }

  /**
   * Reads the whole store through a new connection. Throws unless it has everything that the writer committed, also after a
   * crash. Returns what a function reads in the same snapshot.
   * @param connection the connection of the writer
   */
  verify<T>(committed: Committed, connection: Database, read: (database: Database, row: StoreRow) => T): T {
    this.check();
    const database = stat(this.#path);
    const result = this.#readBack(committed, read);
    // SQLite reads a WAL with lost frames now, but not after a crash.
    if (!this.#hasFrames()) {
      if (!emptyWal(connection))
        throw new Error(`${this.#path}-wal was changed while another program uses it: end that program`);
      this.#frames = NO_FRAMES;
      return this.verify(committed, connection, read);
    }
    this.#database = database;
    return result;
  }

  close(): void {
    this.#index.close();
    this.#checkpointGuard.close();
  }

  #isDatabaseUnchanged(): boolean {
    return isUnchanged(this.#database, assertSame(this.#path, this.#database));
  }

  /** Returns whether the WAL has all frames that SQLite's index names. A checkpoint would move missing ones as zeros. */
  #hasFrames(): boolean {
    const frames = this.#index.read();
    if (!hasFrames(`${this.#path}-wal`, frames, this.#frames, this.#pages)) return false;
    this.#frames = frames;
    return true;
  }

  #readBack<T>({ id, sequence, transactions }: Committed, read: (database: Database, row: StoreRow) => T): T {
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
        return read(database, row);
      })();
    } catch (error) {
      throw isTemporary(error)
        ? unreadableError(this.#path, error)
        : changedError(this.#path, errorMessage(error));
    }
  }
}

/** Moves the WAL to the database. Returns false if another program uses the WAL longer than this. */
function emptyWal(connection: Database): boolean {
  connection.run(`PRAGMA busy_timeout = ${VERIFY_TIMEOUT_MS}`);
  try {
    return connection.query<{ busy: bigint }, []>("PRAGMA wal_checkpoint(TRUNCATE)").get()?.busy === 0n;
  } finally {
    connection.run(`PRAGMA busy_timeout = ${BUSY_TIMEOUT_MS}`);
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

/** Besides the size, the time of the last change shows a file that was overwritten by another of the same size. */
const isUnchanged = (left: BigIntStats, now: BigIntStats): boolean =>
  left.size === now.size && left.mtimeNs === now.mtimeNs;

/** A symbolic link in the place of a file is another file, because the next start would look beside its target. */
const stat = (path: string): BigIntStats => lstatSync(path, { bigint: true });
const find = (path: string): BigIntStats | undefined =>
  lstatSync(path, { bigint: true, throwIfNoEntry: false });
