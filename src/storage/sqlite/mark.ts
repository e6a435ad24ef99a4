/**
 * The high-water mark of a store, in the file `PATH-mark`: its epoch and how many transactions it has committed. A store
 * that has committed fewer has lost some. The mark is written after the fsync of each commit, without an fsync of its own:
 * a killed process loses no written page, and after a power cut an older mark is harmless.
 */
import type { Database } from "bun:sqlite";
import {
  closeSync,
  constants,
  existsSync,
  fstatSync,
  ftruncateSync,
  lstatSync,
  openSync,
  readFileSync,
  rmSync,
  writeSync,
} from "node:fs";
import { crc32 } from "node:zlib";
import { describeFsError, getErrno } from "../../error-message.ts";
import { PreconditionError } from "../maintenance.ts";
import {
  assertNotOnlyWal,
  createPrivate,
  describeKind,
  openFile,
  PRIVATE_MODE,
  statRegularFile,
} from "./open-file.ts";
import { type StoreRow, storeRow } from "./store-row.ts";

export interface Mark {
  readonly epoch: string;
  /** The number of transactions committed in this epoch. */
  readonly transactions: number;
}

export interface MarkCheck {
  /** What the store has lost, in plain words; `undefined` if it has lost nothing that the mark shows. */
  readonly loss: string | undefined;
  /** Why the mark could not be read; `undefined` if it was read. */
  readonly problem: string | undefined;
}

const LINE = /^(\S+) (\d{1,16}) ([0-9a-f]{8})\n$/;

const encode = (text: string): string => `${text} ${crc32(text).toString(16).padStart(8, "0")}\n`;

export const markNotWritten = (error: unknown): string =>
  `the high-water mark cannot be written: ${describeFsError(error)}`;

export const markPath = (path: string): string => `${path}-mark`;

export const markOf = ({ epoch, transactions }: StoreRow): Mark => ({
  epoch,
  transactions: Number(transactions),
});

const WRITE = constants.O_RDWR | constants.O_CREAT | constants.O_NOFOLLOW;

/** Writes the mark of a store after each commit. Keeps its file open, because it is written often. */
export class MarkWriter {
  readonly #path: string;
  #file: number | undefined;

  constructor(path: string) {
    this.#path = markPath(path);
  }

  write({ epoch, transactions }: Mark): void {
    const line = encode(`${epoch} ${String(transactions).padStart(16, "0")}`);
    if (writeSync(this.#descriptor(), line, 0) !== line.length) throw new Error("only a part was written");
  }

  close(): void {
    if (this.#file !== undefined) closeSync(this.#file);
    this.#file = undefined;
  }

  #descriptor(): number {
    // A file that was removed or replaced has no name left. A mark that was moved counts as missing, which is harmless.
    if (this.#file !== undefined && fstatSync(this.#file).nlink > 0) return this.#file;
    this.close();
    statRegularFile(this.#path);
    createPrivate(this.#path);
    const descriptor = openSync(this.#path, WRITE, PRIVATE_MODE);
    this.#file = descriptor;
    // Another epoch or a damaged line may be longer.
    ftruncateSync(descriptor);
    return descriptor;
  }
}

/** Writes the mark of a store that no server uses. */
export function writeMark(path: string, mark: Mark): void {
  const writer = new MarkWriter(path);
  try {
    writer.write(mark);
  } finally {
    writer.close();
  }
}

/** Writes the mark of an epoch that a command has begun. Throws an Error that says that the rest is complete. */
export function beginMark(path: string, epoch: string): void {
  try {
    writeMark(path, { epoch, transactions: 0 });
  } catch (cause) {
    throw new Error(
      `the store is complete, but ${markNotWritten(cause)}; the server tries again when it starts`,
      {
        cause,
      },
    );
  }
}

/** Removes the mark before a command changes the epoch, so that a crash in between leaves no wrong mark. */
export function removeMark(path: string): void {
  const file = markPath(path);
  const found = lstatSync(file, { throwIfNoEntry: false });
  if (found?.isDirectory()) throw new PreconditionError(`${file} is ${describeKind(found)}: move it away`);
  rmSync(file, { force: true });
}

/** Returns the mark of a store, or why it cannot be read. */
function readMark(path: string): Mark | string {
  let text: string;
  try {
    if (statRegularFile(markPath(path)) === undefined) return "it is missing";
    text = readFileSync(markPath(path), "utf8");
  } catch (error) {
    return getErrno(error) === "ENOENT" ? "it is missing" : describeFsError(error);
  }
  const [line, epoch, transactions] = LINE.exec(text) ?? [];
  if (epoch === undefined || line !== encode(`${epoch} ${transactions}`)) return "it is damaged";
  return { epoch, transactions: Number(transactions) };
}

/**
 * Compares a store with its mark, without changing the store: SQLite would otherwise move a damaged log to the database.
 * A server may be using the store. Throws if the store is damaged or has only a log.
 */
export function checkMark(path: string): MarkCheck {
  assertNotOnlyWal(path);
  // The mark is read first, because a server writes it after the database.
  return checkAgainst(path, readMark(path), (mark) => {
    if (!existsSync(path)) return isMissing(path, mark);
    const database = openFile(path, { readonly: true, safeIntegers: true });
    try {
      database.run("PRAGMA busy_timeout = 5000");
      return lossOf(path, mark, readPosition(database));
    } finally {
      // Unlike another connection, a read-only one leaves the log as it is when it closes.
      database.close();
    }
  });
}

/** Compares an open store with the mark of a path. The connection must not have a transaction yet. */
export function checkMarkOf(path: string, database: Database): MarkCheck {
  return readMarkFirst(path)(database);
}

/**
 * Reads the mark of a path. Returns a function that compares a store that is opened or copied later with this mark;
 * `undefined` stands for a missing store. The order matters, because a server writes the mark after the database.
 */
export function readMarkFirst(path: string): (database: Database | undefined) => MarkCheck {
  const mark = readMark(path);
  return (database) =>
    checkAgainst(path, mark, (read) =>
      database === undefined ? isMissing(path, read) : lossOf(path, read, readPosition(database)),
    );
}

function checkAgainst(
  path: string,
  mark: Mark | string,
  findLoss: (mark: Mark) => string | undefined,
): MarkCheck {
  return typeof mark === "string"
    ? { loss: undefined, problem: `${markPath(path)} cannot be read: ${mark}` }
    : { loss: findLoss(mark), problem: undefined };
}

const isMissing = (path: string, mark: Mark): string => `it is missing, but ${describe(path, mark)}`;

const describe = (path: string, { transactions }: Mark): string =>
  `${markPath(path)} has ${transactions} ${transactions === 1 ? "transaction" : "transactions"}`;

function lossOf(path: string, mark: Mark, found: Mark | undefined): string | undefined {
  if (found === undefined) return `it is empty, but ${describe(path, mark)}`;
  if (found.epoch !== mark.epoch) {
    return `it is another store than that of ${markPath(path)} (epochs ${found.epoch} and ${mark.epoch})`;
  }
  const missing = mark.transactions - found.transactions;
  if (missing <= 0) return undefined;
  return missing === 1
    ? "its last transaction is missing, with one or more acknowledged changes"
    : `its last ${missing} transactions are missing, each with one or more acknowledged changes`;
}

/** Returns the position of a store as a mark; `undefined` for an empty file. */
function readPosition(database: Database): Mark | undefined {
  const tables = database.query("SELECT 1 FROM sqlite_schema WHERE name = 'store'");
  if (tables.get() === null) return undefined;
  return markOf(storeRow(database));
}

/** Throws if a store has lost transactions or is damaged. Returns why the mark could not be read, if so. */
export function assertNotBehindMark(path: string): string | undefined {
  const { loss, problem } = checkMark(path);
  if (loss === undefined) return problem;
  throw new PreconditionError(describeLoss(path, loss));
}

/** Returns what a store has lost, and what to do. */
export const describeLoss = (path: string, loss: string): string =>
  `${loss}: restore a backup with todo restore, or continue without them with todo accept-loss ${path}`;
