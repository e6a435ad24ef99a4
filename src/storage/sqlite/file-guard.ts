import { type Database, SQLiteError } from "bun:sqlite";
import { type BigIntStats, closeSync, existsSync, lstatSync, openSync, readSync, statSync } from "node:fs";
import { errorMessage } from "../../error-message.ts";
import { assertIntact } from "./contents.ts";
import { isDamage } from "./errors.ts";
import { type FileIdentity, isSame } from "./files.ts";
import { BUSY_TIMEOUT_MS, openDatabase } from "./open.ts";
import { storeRow } from "./store-row.ts";

const WAL_HEADER_BYTES = 32;
const FRAME_HEADER_BYTES = 24;
/** The number of frames that are read at once. */
const READ_FRAMES = 8;
/** Holds the longest pages that SQLite has. */
const BUFFER = Buffer.alloc(READ_FRAMES * (FRAME_HEADER_BYTES + 65_536));
/** From this number of frames in the WAL on, each commit makes a checkpoint. */
const CHECKPOINT_FRAMES = 1000;
/** SQLite increments the first salt when it starts a WAL again; commands may do so, too. */
const MAX_RESTARTS = 65_536;
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
  readonly database: BigIntStats;
  readonly wal: BigIntStats;
}

/** The committed frames of a WAL. */
interface Wal {
  readonly header: Buffer;
  readonly count: number;
  /** The header of the last frame. Its checksum covers all frames before it. */
  readonly frame: Buffer;
}

const EMPTY_WAL: Wal = { header: Buffer.alloc(0), count: 0, frame: Buffer.alloc(0) };

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
  #wal: Wal = EMPTY_WAL;
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
    this.#sharedMemory = stat(`${path}-shm`);
    this.#lastSeen = { database: stat(path), wal: stat(`${path}-wal`) };
    this.#wal = readWal(path, EMPTY_WAL) ?? EMPTY_WAL;
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
      this.#readBack(committed, assertIntact);
    } else if (!isUnchanged(this.#lastSeen.database, assertSame(this.#path, this.#lastSeen.database)))
      throw changedError(this.#path);
  }

  /** To be called after each transaction that changes the files. Throws if another program has changed them meanwhile. */
  checkAfter(committed: Committed): void {
    const last = this.#lastSeen.database;
    const files = this.#statFiles();
    const wal = readWal(this.#path, this.#wal);
    const isCheckpoint = !isUnchanged(last, files.database);
    // SQLite makes a checkpoint only of a long WAL, and never shortens the database.
    const isExpected = wal !== undefined && (!isCheckpoint || wal.count >= CHECKPOINT_FRAMES);
    if (!isExpected || wal.count === this.#wal.count || files.database.size < last.size) {
      this.#verify(committed);
      return;
    }
    if (isCheckpoint) this.#readBack(committed, sampleTodos);
    this.#remember(files, wal);
  }

  /** Returns whether the database at the path is still the one that the writer has open. */
  hasDatabase(): boolean {
    return isSame(this.#lastSeen.database, find(this.#path));
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

  /** Throws unless the store has everything that the writer committed, also after a crash. */
  #verify(committed: Committed): void {
    const files = this.#statFiles();
    const wal = readWal(this.#path, this.#wal);
    // The position may be in the WAL while pages of the database are old.
    this.#readBack(committed, assertIntact);
    // SQLite reads a WAL with lost frames now, but not after a crash. A commit, also a failed one, explains a changed WAL.
    const isExplained = this.#hasFailed || isUnchanged(this.#lastSeen.wal, files.wal);
    const isComplete = wal !== undefined && (wal.count === 0 || wal.count !== this.#wal.count || isExplained);
    if (isComplete) {
      this.#remember(files, wal);
      return;
    }
    if (!this.#emptyWal(VERIFY_TIMEOUT_MS))
      throw new Error(`${this.#path}-wal was changed while another program uses it: end that program`);
    this.#wal = EMPTY_WAL;
    this.#verify(committed);
  }

  #remember(files: Files, wal: Wal): void {
    this.#lastSeen = files;
    this.#wal = wal;
    this.#hasFailed = false;
    this.#isDamaged = false;
  }

  /** Reads the store through a new connection. Throws unless it has the position of the last commit. */
  #readBack({ id, sequence, transactions }: Committed, check: (database: Database) => void): void {
    try {
      // SQLite would delete the WAL of an empty database.
      if (statSync(this.#path).size === 0) throw new Error("it is empty");
      using database = openDatabase(this.#path, "readOnly");
      database.transaction(() => {
        const row = storeRow(database);
        if (row.id !== id || Number(row.sequence) !== sequence || Number(row.transactions) < transactions)
          throw new Error("its last change is another one");
        check(database);
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

/** Reads which frames a WAL has. Returns `undefined` unless it continues an earlier state, as only SQLite does. */
function readWal(path: string, before: Wal): Wal | undefined {
  // Unlike the database, the WAL may be opened beside SQLite, because SQLite has no locks on it.
  const descriptor = openSync(`${path}-wal`, "r");
  try {
    const bytes = Buffer.alloc(WAL_HEADER_BYTES);
    const header = bytes.subarray(0, readSync(descriptor, bytes, { position: 0 }));
    const isSame = header.equals(before.header);
    let { count, frame } = isSame ? before : EMPTY_WAL;
    const frames = readFrames(descriptor, bytes.readUInt32BE(8), Math.max(count - 1, 0));
    if (count > 0 && !frames.next().value?.equals(frame)) return undefined;
    let read = count;
    for (const next of frames) {
      // A frame from before a restart has other salts.
      if (next.compare(header, 16, 24, 8, 16) !== 0) break;
      read++;
      // Only the last frame of a transaction has a database size.
      if (next.readUInt32BE(4) === 0) continue;
      frame = Buffer.from(next);
      count = read;
    }
    return isSame || isRestarted(before.header, header, frame) ? { header, count, frame } : undefined;
  } finally {
    closeSync(descriptor);
  }
}

/** Yields the headers of the frames of a WAL from an index on. Reads whole frames, because few large reads are faster. */
function* readFrames(descriptor: number, pageSize: number, first: number): Generator<Buffer, undefined> {
  const frameBytes = FRAME_HEADER_BYTES + pageSize;
  const frames = BUFFER.subarray(0, READ_FRAMES * frameBytes);
  let length = frames.length;
  for (let position = WAL_HEADER_BYTES + first * frameBytes; length === frames.length; position += length) {
    length = readSync(descriptor, frames, { position });
    for (let at = 0; at + frameBytes <= length; at += frameBytes)
      yield frames.subarray(at, at + FRAME_HEADER_BYTES);
  }
}

/** Returns whether SQLite has started a WAL again, with the first frames of the new one. */
function isRestarted(before: Buffer, now: Buffer, frame: Buffer): boolean {
  if (before.length === 0) return true;
  return frame.length > 0 && (now.readUInt32BE(16) - before.readUInt32BE(16)) >>> 0 < MAX_RESTARTS;
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
