import { type Database, SQLiteError } from "bun:sqlite";
import { closeSync, existsSync, openSync, readSync, type Stats, statSync } from "node:fs";
import { errorMessage, getErrno } from "../../error-message.ts";
import { assertUndamaged, findStructuralDamage, storedIdempotencyRecords } from "./contents.ts";
import { isDamage } from "./errors.ts";
import { type FileIdentity, isSame } from "./files.ts";
import {
  BUSY_TIMEOUT_MS,
  openDatabase,
  WAL_FRAME_BYTES,
  WAL_FRAME_HEADER_BYTES,
  WAL_SIZE_LIMIT,
} from "./open.ts";
import { storeRow } from "./store-row.ts";

/** The first bytes of a WAL with little-endian checksums. Bun supports no system on which SQLite writes others. */
const WAL_MAGIC = 0x377f0682;
const SAMPLE_SIZE = 32;
/** Longer than a command that changes API keys takes. */
const VERIFY_TIMEOUT_MS = 1000;

/** What the writer has committed. */
export interface Committed {
  readonly id: string;
  readonly sequence: number;
  /** Commands that change API keys may have committed more. */
  readonly transactions: number;
}

interface Files {
  readonly database: Stats;
  readonly wal: Stats;
}

/**
 * Notices when another program removes, replaces, overwrites or truncates the files of a store, because SQLite would go on
 * writing without an error. Uses `stat`, because closing a descriptor of the database, the lock or the shared memory would
 * drop the locks of SQLite.
 */
export class FileGuard {
  readonly #path: string;
  readonly #lock: FileIdentity;
  readonly #database: Database;
  readonly #sharedMemory: FileIdentity;
  /** The files as the writer left them. */
  #lastSeen: Files;
  /** Whether a transaction of the writer failed after it had written to the WAL. */
  #hasFailed = false;
  /** Whether a transaction of the writer has found damage, which the state of the files does not show. */
  #isDamaged = false;

  /**
   * @param lock the identity of the lock file when it was locked
   * @param database the connection of the writer, which has read the store
   */
  constructor(path: string, lock: FileIdentity, database: Database) {
    this.#path = path;
    this.#lock = lock;
    this.#database = database;
    this.#sharedMemory = statSync(`${path}-shm`);
    this.#lastSeen = { database: statSync(path), wal: statSync(`${path}-wal`) };
  }

  /** Throws unless the files are as the writer left them, or another program has changed them without a loss. */
  checkBefore(committed: Committed): void {
    // Another server may have started without this lock. If it has written, the position of the store differs.
    assertSame(`${this.#path}-lock`, this.#lock);
    assertSame(`${this.#path}-shm`, this.#sharedMemory);
    const files = this.#statFiles();
    const isSameAsLast =
      isUnchanged(this.#lastSeen.database, files.database) && isUnchanged(this.#lastSeen.wal, files.wal);
    if (this.#isDamaged || !isSameAsLast) this.#verify(committed);
  }

  /**
   * Throws unless the next start would find everything. Reads all contents, because another program may have changed the
   * database during a checkpoint of SQLite. SQLite still has a removed WAL open, and moves it to the database.
   */
  checkBeforeClose(committed: Committed): void {
    if (existsSync(`${this.#path}-wal`)) {
      this.checkBefore(committed);
      this.#readBack(committed, assertSound);
    } else if (!isUnchanged(this.#lastSeen.database, assertSame(this.#path, this.#lastSeen.database)))
      throw changedError(this.#path);
  }

  /** Throws if a part of the files was removed or overwritten during a commit. */
  checkAfter(committed: Committed): void {
    const before = this.#lastSeen;
    const files = this.#statFiles();
    // SQLite itself shortens a WAL that a long reader made grow.
    const isShortened = before.wal.size > WAL_SIZE_LIMIT && files.wal.size === WAL_SIZE_LIMIT;
    const hasLost =
      files.database.size < before.database.size ||
      (!isShortened && files.wal.size < before.wal.size) ||
      this.#isWalOverwritten(isShortened ? 0 : before.wal.size);
    if (hasLost) {
      this.#verify(committed);
      return;
    }
    // Only a checkpoint of SQLite, or another program, changes the database.
    if (isShortened || !isUnchanged(before.database, files.database)) this.#readBack(committed, sampleTodos);
    this.#lastSeen = files;
  }

  /** Remembers the files after a transaction that is not counted. */
  remember(): void {
    this.#lastSeen = this.#statFiles();
    this.#hasFailed = false;
    this.#isDamaged = false;
  }

  /** To be called after a transaction that failed. It may have changed the WAL. */
  transactionFailed(error: unknown): void {
    this.#hasFailed ||= error instanceof SQLiteError;
    this.#isDamaged ||= isDamage(error);
  }

  #statFiles(): Files {
    return {
      database: assertSame(this.#path, this.#lastSeen.database),
      wal: assertSame(`${this.#path}-wal`, this.#lastSeen.wal),
    };
  }

  /**
   * Returns whether another program has overwritten the WAL during a commit, so that its size does not show it. After a
   * truncation, SQLite writes beyond the end, and the last frame before that consists of zeros.
   */
  #isWalOverwritten(end: number): boolean {
    const start = new DataView(new ArrayBuffer(4));
    const frame = new Uint8Array(WAL_FRAME_HEADER_BYTES);
    // Unlike the database, the WAL may be opened beside SQLite, because SQLite has no locks on it.
    const descriptor = openSync(`${this.#path}-wal`, "r");
    try {
      readSync(descriptor, start, { position: 0 });
      if (end >= WAL_FRAME_BYTES) readSync(descriptor, frame, { position: end - WAL_FRAME_BYTES });
    } finally {
      closeSync(descriptor);
    }
    return start.getUint32(0) !== WAL_MAGIC || (end >= WAL_FRAME_BYTES && frame.every((byte) => byte === 0));
  }

  /** Throws unless the store has everything that the writer committed, also after a crash. */
  #verify(committed: Committed): void {
    const { wal } = this.#statFiles();
    const transactions = this.#readBack(committed, this.#isDamaged ? assertIntact : assertSound);
    // SQLite reads a WAL with lost frames now, but not after a crash. A command or a failed commit explains a changed WAL.
    const isExplained =
      (transactions > committed.transactions || this.#hasFailed) && wal.size >= this.#lastSeen.wal.size;
    if (!isUnchanged(this.#lastSeen.wal, wal) && !isExplained && !this.#emptyWal(VERIFY_TIMEOUT_MS))
      throw new Error(`${this.#path}-wal was changed while another program uses it: end that program`);
    this.remember();
  }

  /**
   * Reads the store through a new connection. Throws unless it has the position of the last commit. Returns its number of
   * transactions.
   */
  #readBack({ id, sequence, transactions }: Committed, check: (database: Database) => void): number {
    try {
      // SQLite would delete the WAL of an empty database.
      if (statSync(this.#path).size === 0) throw new Error("it is empty");
      using database = openDatabase(this.#path, "readOnly");
      return database.transaction(() => {
        const row = storeRow(database);
        const found = Number(row.transactions);
        if (row.id !== id || Number(row.sequence) !== sequence || found < transactions)
          throw new Error("its last change is another one");
        check(database);
        return found;
      })();
    } catch (error) {
      throw changedError(this.#path, errorMessage(error));
    }
  }

  /** Moves the WAL to the database. Returns false if another program uses the WAL longer than this. */
  #emptyWal(timeoutMs: number): boolean {
    this.#database.run(`PRAGMA busy_timeout = ${timeoutMs}`);
    try {
      return this.#database.query<{ busy: bigint }, []>("PRAGMA wal_checkpoint(TRUNCATE)").get()?.busy === 0n;
    } finally {
      this.#database.run(`PRAGMA busy_timeout = ${BUSY_TIMEOUT_MS}`);
    }
  }
}

/** Throws if contents are damaged: the position may be in the WAL while pages of the database are old. */
function assertSound(database: Database): void {
  assertUndamaged(database);
  const found = database.query<{ quick_check: string }, []>("PRAGMA quick_check(1)").get()?.quick_check;
  if (found !== "ok") throw new Error(found);
}

/** Throws if anything in a store cannot be read. Takes longer than `assertSound`. */
function assertIntact(database: Database): void {
  assertSound(database);
  const [found] = findStructuralDamage(database);
  if (found !== undefined) throw new Error(found);
  Array.from(storedIdempotencyRecords(database));
}

/** Reads a few to-dos. Throws if one of their pages consists of zeros, as after a truncation during a checkpoint. */
function sampleTodos(database: Database): void {
  const { last_id } = storeRow(database);
  const find = database.query("SELECT json FROM todos WHERE id >= ? ORDER BY id LIMIT 1");
  for (let i = 0n; i < SAMPLE_SIZE; i++) find.get((last_id * i) / BigInt(SAMPLE_SIZE));
}

export const changedError = (path: string, detail = "its last change is another one"): Error =>
  new Error(`another program has changed ${path} (${detail})`);

/** Returns the state of a file. Throws if the file is not the expected one. */
function assertSame(path: string, expected: FileIdentity): Stats {
  const found = statIfPresent(path);
  if (found !== undefined && isSame(expected, found)) return found;
  throw new Error(`${path} was moved, removed or replaced`);
}

/** Returns the state of a file, or `undefined` if it is missing. Faster than the option `throwIfNoEntry`. */
function statIfPresent(path: string): Stats | undefined {
  try {
    return statSync(path);
  } catch (error) {
    if (getErrno(error) === "ENOENT") return undefined;
    throw error;
  }
}

/** Besides the size, the time of the last change shows a file that was overwritten by another of the same size. */
const isUnchanged = (left: Stats, now: Stats): boolean =>
  left.size === now.size && left.mtimeMs === now.mtimeMs;
