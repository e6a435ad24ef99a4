/**
 * The high-water mark of a store, in the file `PATH-mark`: its id and how many transactions it has committed. A store
 * that has committed fewer has lost some. The mark is written after the fsync of each commit, without an fsync of its own:
 * a killed process loses no written page, and after a power cut an older mark is harmless. When a command has changed API keys,
 * the server writes the mark only when it uses them, because the command waits for that.
 */
import {
  closeSync,
  constants,
  existsSync,
  lstatSync,
  openSync,
  readFileSync,
  rmSync,
  writeSync,
} from "node:fs";
import { dirname } from "node:path";
import { crc32 } from "node:zlib";
import { describeFsError, getErrno } from "../../error-message.ts";
import { fsyncFolder } from "../atomic-file.ts";
import { PreconditionError } from "../maintenance.ts";
import { describeLoss } from "./diagnosis.ts";
import { assertNotOnlyWal, createPrivate, describeKind, statRegularFile } from "./files.ts";
import { assertKnownFormat } from "./migrations.ts";
import { openDatabase } from "./open.ts";
import { type StoreRow, storeRow } from "./store-row.ts";

export interface Mark {
  /** The id of the store. */
  readonly id: string;
  /** The number of transactions that it has committed. */
  readonly transactions: number;
}

/** Readers of the mark ignore what follows its line. */
const LINE = /^(\S+) (\d{1,16}) ([0-9a-f]{8})\n/;

const encode = (text: string): string => `${text} ${crc32(text).toString(16).padStart(8, "0")}\n`;

const encodeMark = ({ id, transactions }: Mark): string =>
  encode(`${id} ${String(transactions).padStart(16, "0")}`);

export const markPath = (path: string): string => `${path}-mark`;

export const toMark = ({ id, transactions }: StoreRow): Mark => ({
  id,
  transactions: Number(transactions),
});

const WRITE = constants.O_RDWR | constants.O_NOFOLLOW;

/** Writes the mark of an open store. It never lowers a mark, and never writes over the mark of another store. */
export class MarkWriter {
  readonly #path: string;
  readonly #id: string;
  /** Stays open, because opening the file for each batch costs four times as much as writing it. */
  #descriptor: number | undefined;
  #transactions = 0;
  /** Why the mark was not written; `undefined` if it was. */
  problem: string | undefined;

  /** @param id the id of the store */
  constructor(path: string, id: string) {
    this.#path = path;
    this.#id = id;
  }

  /** Writes the mark after a commit. A failure fails no request, because the store is complete without a mark. */
  write(transactions: number): void {
    if (this.#descriptor === undefined) this.open(transactions);
    else this.#attempt(() => this.#writeLine(transactions));
  }

  /**
   * Opens the file at the path of the mark again, and writes the mark.
   * @param canCreate whether a missing or damaged mark is written, too
   */
  open(transactions: number, canCreate = true): void {
    this.close();
    this.#attempt(() => {
      const found = readMark(this.#path);
      if (typeof found === "string") {
        if (!canCreate) return;
      } else if (found.id !== this.#id) {
        throw new Error(`it is that of another store: move ${markPath(this.#path)} away`);
      } else {
        this.#transactions = Math.max(this.#transactions, found.transactions);
      }
      this.#descriptor = openMark(markPath(this.#path));
      this.#writeLine(transactions);
    });
  }

  close(): void {
    if (this.#descriptor !== undefined) closeSync(this.#descriptor);
    this.#descriptor = undefined;
  }

  #writeLine(transactions: number): void {
    if (this.#descriptor === undefined) return;
    this.#transactions = Math.max(this.#transactions, transactions);
    const line = encodeMark({ id: this.#id, transactions: this.#transactions });
    if (writeSync(this.#descriptor, line, 0) !== line.length) throw new Error("only a part was written");
  }

  #attempt(write: () => void): void {
    try {
      write();
      this.problem = undefined;
    } catch (error) {
      this.close();
      this.problem = `the high-water mark cannot be written: ${describeFsError(error)}`;
    }
  }
}

/** Opens the mark for writing, and creates a missing one. Throws unless it is a regular file. */
function openMark(file: string): number {
  if (statRegularFile(file) === undefined) createPrivate(file);
  return openSync(file, WRITE);
}

/**
 * Writes the mark of a store, which exists or is about to. Returns why it cannot be written, if so: the store is complete
 * without it.
 */
export function writeMark(path: string, { id, transactions }: Mark): string | undefined {
  const mark = new MarkWriter(path, id);
  mark.open(transactions);
  mark.close();
  return mark.problem;
}

/** Writes the mark of a store that a command has written. Throws an Error that says that the rest is complete. */
export function beginMark(path: string, id: string): void {
  const problem = writeMark(path, { id, transactions: 0 });
  if (problem === undefined) return;
  throw new Error(`the store is complete, but ${problem}; the server tries again when it starts`);
}

/** Removes the mark before a command changes the id, and waits for the disk, so that a crash in between leaves no wrong mark. */
export function removeMark(path: string): void {
  const file = markPath(path);
  const found = lstatSync(file, { throwIfNoEntry: false });
  if (found?.isDirectory()) throw new PreconditionError(`${file} is ${describeKind(found)}: move it away`);
  rmSync(file, { force: true });
  fsyncFolder(dirname(path));
}

/** Returns the mark of a store, or why it cannot be read. */
export function readMark(path: string): Mark | string {
  let text: string;
  try {
    if (statRegularFile(markPath(path)) === undefined) return "it is missing";
    text = readFileSync(markPath(path), "utf8");
  } catch (error) {
    return getErrno(error) === "ENOENT" ? "it is missing" : describeFsError(error);
  }
  const [line, id, transactions] = LINE.exec(text) ?? [];
  if (id === undefined || line !== encode(`${id} ${transactions}`)) return "it is damaged";
  return { id, transactions: Number(transactions) };
}

/**
 * Compares a store with its mark, without changing the store: SQLite would otherwise move a damaged WAL to the database.
 * A server may be using the store. Returns what the store has lost, in plain words, or why the mark could not be read.
 * Throws if the store is damaged or has only a WAL.
 */
export function checkMark(path: string) {
  assertNotOnlyWal(path);
  // The mark comes first, because a server writes it after the database.
  const mark = readMark(path);
  if (typeof mark === "string") return { problem: `${markPath(path)} cannot be read: ${mark}` };
  if (!existsSync(path)) return { loss: `it is missing, but ${describe(path, mark)}` };
  // Unlike another connection, a read-only one leaves the WAL as it is when it closes.
  using database = openDatabase(path, "readOnly");
  if (assertKnownFormat(database) === 0) return { loss: `it is empty, but ${describe(path, mark)}` };
  return { loss: findLoss(path, mark, toMark(storeRow(database))) };
}

const describe = (path: string, { transactions }: Mark): string =>
  `${markPath(path)} has ${transactions} ${transactions === 1 ? "transaction" : "transactions"}`;

function findLoss(path: string, mark: Mark, found: Mark): string | undefined {
  if (found.id !== mark.id) {
    return `it is another store than that of ${markPath(path)} (ids ${found.id} and ${mark.id})`;
  }
  const missing = mark.transactions - found.transactions;
  if (missing <= 0) return undefined;
  return missing === 1
    ? "its last transaction is missing, with one or more acknowledged changes"
    : `its last ${missing} transactions are missing, each with one or more acknowledged changes`;
}

/** Throws if a store has lost transactions or is damaged. Returns why the mark could not be read, if so. */
export function assertNotBehindMark(path: string): string | undefined {
  const { loss, problem } = checkMark(path);
  if (loss === undefined) return problem;
  throw new PreconditionError(describeLoss(path, loss));
}
