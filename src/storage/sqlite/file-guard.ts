import type { Database } from "bun:sqlite";
import { existsSync, type Stats, statSync } from "node:fs";
import { dirname } from "node:path";
import { getErrno } from "../../error-message.ts";
import { BUSY_TIMEOUT_MS } from "./connection.ts";
import { computeDigest, matchesStoredDigest } from "./contents.ts";
import { countValidFrames } from "./log-frames.ts";
import { type FileIdentity, isSame, openFile } from "./open-file.ts";
import { storeRow } from "./store-row.ts";

/** A log without a long reader has about 4 MB and is reused. */
export const WAL_SIZE_LIMIT = 8 * 1024 * 1024;
const LIMIT_INTERVAL_MS = 1000;
const MAX_VERIFIED_HOLES = 3;
/** More than the resolution of the clock of any file system that SQLite supports. */
const CLOCK_RESOLUTION_MS = 3000;

/** What the writer has committed. */
export interface Committed {
  readonly epoch: string;
  readonly sequence: number;
  /** Commands that change API keys may have committed more. */
  readonly transactions: number;
}

interface Files {
  readonly database: Stats;
  readonly wal: Stats;
}

/**
 * Notices when another program removes, replaces or truncates the files of a store, because SQLite would go on writing
 * without an error. Uses `stat`, because closing a descriptor of the database, the lock or the shared memory would drop the
 * locks of SQLite.
 */
export class FileGuard {
  readonly #path: string;
  readonly #walPath: string;
  readonly #sharedMemoryPath: string;
  readonly #lockPath: string;
  readonly #folderPath: string;
  readonly #lock: FileIdentity;
  readonly #database: Database;
  readonly #sharedMemory: FileIdentity;
  /** The files as the writer left them. */
  #left: Files;
  /** The folder of the files when the lock and the shared memory were checked last. */
  #checkedFolder: Stats | undefined;
  /** Whether a file has fewer blocks than bytes only if a part of it was removed. File systems that compress differ. */
  #blocksShowHoles = true;
  #verifiedHoles = 0;
  #nextLimitAt = 0;

  /**
   * @param lock the identity of the lock file when it was locked
   * @param database the connection of the writer, which has read the store
   */
  constructor(path: string, lock: FileIdentity, database: Database) {
    this.#path = path;
    this.#walPath = `${path}-wal`;
    this.#sharedMemoryPath = `${path}-shm`;
    this.#lockPath = `${path}-lock`;
    this.#folderPath = dirname(path);
    this.#lock = lock;
    this.#database = database;
    this.#sharedMemory = statSync(this.#sharedMemoryPath);
    this.#left = { database: statSync(path), wal: statSync(this.#walPath) };
  }

  /** Throws unless the files are as the writer left them, or another program has changed them without a loss. */
  checkBefore(committed: Committed): void {
    this.#requireNames();
    const files = this.#requireFiles();
    if (isUnchanged(this.#left.database, files.database) && isUnchanged(this.#left.wal, files.wal)) return;
    this.#verify(files, committed);
  }

  /** Throws if closing would move a log to the wrong database. SQLite still has a removed log open, so it may be moved. */
  checkBeforeClose(committed: Committed): void {
    if (existsSync(this.#walPath)) this.checkBefore(committed);
    else if (!isUnchanged(this.#left.database, requireSame(this.#path, this.#left.database)))
      throw changedError();
  }

  /** Throws if a part of the files was removed during a commit. */
  checkAfter(committed: Committed): void {
    const files = this.#requireFiles();
    if (this.#hasLost(files)) this.#verify(files, committed);
    else this.#left = files;
  }

  /** Notes the files after a transaction that is not counted. */
  note(): void {
    this.#left = this.#requireFiles();
  }

  #requireFiles(): Files {
    return {
      database: requireSame(this.#path, this.#left.database),
      wal: requireSame(this.#walPath, this.#left.wal),
    };
  }

  /** Checks the lock and the shared memory, unless no name in their folder has changed since the last check. */
  #requireNames(): void {
    const folder = statSync(this.#folderPath);
    if (this.#checkedFolder !== undefined && isUnchanged(this.#checkedFolder, folder)) return;
    this.#checkedFolder = undefined;
    // If another server has written without this lock, the position of the store differs.
    if (!isSame(this.#lock, stateOf(this.#lockPath)))
      throw new Error(`${this.#lockPath} was moved, removed or replaced: restart the server`);
    requireSame(this.#sharedMemoryPath, this.#sharedMemory);
    // The clock of a file system may be coarse, so that two changes have the same time.
    if (Math.abs(Date.now() - folder.mtimeMs) > CLOCK_RESOLUTION_MS) this.#checkedFolder = folder;
  }

  #hasLost({ database, wal }: Files): boolean {
    return (
      hasShrunk(this.#left.database, database) ||
      this.#hasNewHoles({ database, wal }) ||
      this.#walHasLost(wal)
    );
  }

  #walHasLost(wal: Stats): boolean {
    return hasShrunk(this.#left.wal, wal) || (this.#blocksShowHoles && hasNewHoles(this.#left.wal, wal));
  }

  #hasNewHoles({ database, wal }: Files): boolean {
    if (!this.#blocksShowHoles) return false;
    return hasNewHoles(this.#left.database, database) || hasNewHoles(this.#left.wal, wal);
  }

  /** Throws unless the store has what the writer committed, its contents have their digest, and no part is missing. */
  #verify(files: Files, { epoch, sequence, transactions }: Committed): void {
    const database = openFile(this.#path, { readonly: true, safeIntegers: true });
    try {
      database.run("PRAGMA busy_timeout = 5000");
      // The position may be in the log while pages of the database are old: only the digest shows that.
      const isSame = database.transaction(() => {
        const row = storeRow(database);
        const isPosition =
          row.epoch === epoch && Number(row.n) === sequence && Number(row.transactions) >= transactions;
        return isPosition && matchesStoredDigest(database, computeDigest(database)) !== false;
      });
      if (!isSame()) throw changedError();
      const found = database.query<{ quick_check: string }, []>("PRAGMA quick_check(1)").get()?.quick_check;
      if (found !== "ok") throw new Error(`${this.#path} is damaged: stop the server and restore a backup`);
    } finally {
      database.close();
    }
    // A checkpoint beside a long reader leaves holes in the database, too. Their pages are in the log.
    const walHasLost = this.#walHasLost(files.wal);
    if (walHasLost && !this.#hasCompleteWal()) this.#checkpoint();
    if (this.#hasNewHoles(files) && ++this.#verifiedHoles >= MAX_VERIFIED_HOLES)
      this.#blocksShowHoles = false;
    // What another program changes during the verification is verified with the next batch.
    this.#left = walHasLost ? this.#requireFiles() : files;
  }

  /** Empties the log if a long reader made it grow and has ended. Does not wait for readers. */
  limitWal(): void {
    if (this.#left.wal.size <= WAL_SIZE_LIMIT || performance.now() < this.#nextLimitAt) return;
    this.#nextLimitAt = performance.now() + LIMIT_INTERVAL_MS;
    this.#database.run("PRAGMA busy_timeout = 0");
    try {
      this.#database.run("PRAGMA wal_checkpoint(TRUNCATE)");
    } finally {
      this.#database.run(`PRAGMA busy_timeout = ${BUSY_TIMEOUT_MS}`);
    }
    this.note();
  }

  /** Returns whether a crash now would lose nothing: no frame that SQLite uses is missing from the log. */
  #hasCompleteWal(): boolean {
    const result = this.#database.query<{ log: bigint }, []>("PRAGMA wal_checkpoint(PASSIVE)").get();
    const frames = Number(result?.log ?? -1);
    return frames >= 0 && countValidFrames(this.#walPath) >= frames;
  }

  /** Moves the log to the database: SQLite reads the rest of a shortened log now, but not after a crash. */
  #checkpoint(): void {
    const result = this.#database.query<{ busy: bigint }, []>("PRAGMA wal_checkpoint(TRUNCATE)").get();
    if (result?.busy !== 0n) throw new Error(`${this.#walPath} was shortened while another program reads it`);
  }
}

export const changedError = (): Error =>
  new Error("another program has changed the store: restart the server");

/** Returns the state of a file. Throws if the file is not the one that the writer left. */
function requireSame(path: string, left: FileIdentity): Stats {
  const found = stateOf(path);
  if (found !== undefined && isSame(left, found)) return found;
  throw new Error(`${path} was moved, removed or replaced: put the file back`);
}

/** Returns the state of a file, or `undefined` if it is missing. Faster than the option `throwIfNoEntry`. */
function stateOf(path: string): Stats | undefined {
  try {
    return statSync(path);
  } catch (error) {
    if (getErrno(error) === "ENOENT") return undefined;
    throw error;
  }
}

/** Besides the size, the time of the last change shows a database that was overwritten by another of the same size. */
const isUnchanged = (left: Stats, now: Stats): boolean =>
  left.size === now.size && left.mtimeMs === now.mtimeMs;

const hasShrunk = (left: Stats, now: Stats): boolean => now.size < left.size;

const hasNewHoles = (left: Stats, now: Stats): boolean => missingBytes(now) > missingBytes(left);

/** Returns how many bytes of a file are not on the disk, because a program wrote past the end of a truncated file. */
const missingBytes = ({ size, blocks }: Stats): number => Math.max(0, size - blocks * 512);
