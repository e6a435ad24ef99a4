/** Notices what happens to the files of a store: while a server uses them, and between two starts. */
import {
  type BigIntStats,
  closeSync,
  constants,
  lstatSync,
  openSync,
  readFileSync,
  readSync,
  statSync,
  writeSync,
} from "node:fs";
import { PreconditionError } from "../maintenance.ts";
import { createPrivate, WAL_SIZE_LIMIT } from "./files.ts";
import { quoteArgument, waysOut } from "./rescue.ts";
import { type Counters, UNUSED } from "./rows.ts";

/** Notices when another program moves, removes, replaces, overwrites or truncates the files of a store. */
export class FileWatch {
  readonly #name: string;
  readonly #path: string;
  /** The lock, and the index of the WAL. */
  readonly #others: readonly (readonly [file: string, BigIntStats])[];
  /** The database as the last checkpoint left it, because nothing else of this program writes it. */
  #database: BigIntStats;
  /** The WAL as the last transaction left it, and its descriptor. */
  #wal: BigIntStats;
  readonly #descriptor: number;
  /** The first salt in the header of the WAL. SQLite adds one when it starts the WAL again. */
  #salt: number | undefined;
  #isSuspect = false;

  /**
   * To be called when all files exist.
   * @param name the configured path of the store, which may lead through symbolic links
   * @param path the canonical path
   */
  constructor(name: string, path: string) {
    this.#name = name;
    this.#path = path;
    this.#others = ["-lock", "-shm"].map((suffix) => [path + suffix, stat(path + suffix)]);
    this.#database = stat(path);
    this.#wal = stat(`${path}-wal`);
    // It has no locks of SQLite, which closing it would drop.
    this.#descriptor = openSync(`${path}-wal`, "r");
    this.#salt = this.#readSalt();
  }

  /** To be called when the store was read back. */
  accept(): void {
    this.acceptCheckpoint();
    this.#salt = this.#readSalt();
    this.#isSuspect = false;
  }

  /** To be called after each checkpoint, complete or not. */
  acceptCheckpoint(): void {
    this.#database = assertSame(this.#path, this.#database);
    this.#acceptWal();
  }

  /** To be called after each attempt to write. Does not throw, because the transaction may be on disk. */
  acceptWrite(): void {
    try {
      const [before, salt] = [this.#salt, this.#readSalt()];
      // What overwrites the WAL while a transaction is written has another salt.
      this.#isSuspect ||= before !== undefined && salt !== before && salt !== (before + 1) % 2 ** 32;
      this.#salt = salt;
      this.#acceptWal();
    } catch {
      this.#isSuspect = true;
    }
  }

  /** A transaction makes the WAL no shorter. */
  #acceptWal(): void {
    const found = assertSame(`${this.#path}-wal`, this.#wal);
    // SQLite shortens a longer one.
    this.#isSuspect ||= found.size < this.#wal.size && found.size < WAL_SIZE_LIMIT;
    this.#wal = found;
  }

  /**
   * Throws if a file is not at its path, or if the configured path names another file. Returns whether no other program has written
   * the database or its WAL.
   */
  areUnchanged(): boolean {
    for (const [file, expected] of this.#others) assertSame(file, expected);
    const database = assertSame(this.#path, this.#database);
    const wal = assertSame(`${this.#path}-wal`, this.#wal);
    if (!isSame(statSync(this.#name, STAT), database))
      throw new Error(`${this.#name} names another file than ${this.#path} now`);
    return !this.#isSuspect && isUnchanged(database, this.#database) && isUnchanged(wal, this.#wal);
  }

  /** Returns whether no other program has written the database. It may have written the WAL. */
  isDatabaseUnchanged(): boolean {
    return isUnchanged(stat(this.#path), this.#database);
  }

  close(): void {
    closeSync(this.#descriptor);
  }

  /** Returns the salt (https://www.sqlite.org/fileformat2.html#walformat); `undefined` for an empty WAL. */
  #readSalt(): number | undefined {
    const bytes = Buffer.alloc(4);
    return readSync(this.#descriptor, bytes, 0, 4, 16) === 4 ? bytes.readUInt32BE() : undefined;
  }
}

const STAT = { bigint: true, throwIfNoEntry: false } as const;

const stat = (file: string): BigIntStats => lstatSync(file, { bigint: true });

const isSame = (found: BigIntStats | undefined, { ino, dev }: BigIntStats): boolean =>
  found?.ino === ino && found.dev === dev;

/** Returns the state of a file. A symbolic link in its place is another file, because the next start would look beside its target. */
function assertSame(file: string, expected: BigIntStats): BigIntStats {
  const found = lstatSync(file, STAT);
  if (found !== undefined && isSame(found, expected)) return found;
  throw new Error(`${file} was moved, removed or replaced`);
}

const isUnchanged = (found: BigIntStats, { size, mtimeNs }: BigIntStats): boolean =>
  found.size === size && found.mtimeNs === mtimeNs;

const MARK = /^(\S+) +(\d{1,20})\n/;

/** Returns how many changes a store has had. */
const changesOf = ({ sequence, key_changes }: Counters): bigint => sequence + key_changes;

/**
 * The high-water mark of a store, in `PATH-mark`: its id and its number of changes. Without it, SQLite would open a store that has lost
 * its WAL without an error. It is written after the fsync of each commit, and needs none itself: a killed process loses no written
 * page, and after a power cut an older mark is harmless.
 */
export class Mark {
  readonly #path: string;
  /** Stays open, because opening the file for each transaction costs four times as much as writing it. */
  #descriptor: number | undefined;

  /** @param path the path of the store */
  constructor(path: string) {
    this.#path = path;
  }

  /** Opens the mark by its path, because another program may have removed it, or put an old copy in its place. Writes it. */
  renew(counters: Counters): void {
    this.close();
    try {
      const { id = counters.id } = parseMark(this.#path);
      // Another id is that of a store that was restored meanwhile.
      if (id !== counters.id) return;
      this.#descriptor = openMark(`${this.#path}-mark`);
    } catch {
      // A failure fails no write. The next start says that the mark is missing.
    }
    this.write(counters);
  }

  /** Writes the mark after a transaction. A failure fails no write, because the store is complete without a mark. */
  write(counters: Counters): void {
    try {
      if (this.#descriptor !== undefined)
        writeSync(this.#descriptor, `${counters.id} ${String(changesOf(counters)).padStart(20)}\n`, 0);
    } catch {
      // An older mark is harmless.
    }
  }

  close(): void {
    if (this.#descriptor !== undefined) closeSync(this.#descriptor);
    this.#descriptor = undefined;
  }
}

/** Writes the mark of a store that a command has changed. */
export function writeMark(path: string, counters: Counters): void {
  const mark = new Mark(path);
  mark.renew(counters);
  mark.close();
}

function openMark(file: string): number {
  createPrivate(file);
  return openSync(file, constants.O_RDWR | constants.O_NOFOLLOW);
}

/** Returns the id and the number of changes in a mark; nothing if it is missing or damaged. */
function parseMark(path: string): { readonly id?: string; readonly changes?: bigint } {
  const file = `${path}-mark`;
  const text = lstatSync(file, { throwIfNoEntry: false })?.isFile() ? readFileSync(file, "utf8") : "";
  const [, id, changes] = MARK.exec(text) ?? [];
  return id === undefined ? {} : { id, changes: BigInt(changes ?? 0) };
}

/**
 * Reads the mark of a store. To be called before the store is opened, because a server writes the mark after the store. Returns a
 * function that throws if the store has lost changes, or if another one is in its place. It returns what to say of a file that a
 * server has used, and that has no mark, as a copy.
 */
export function readMark(path: string): (counters: Counters) => string | undefined {
  const { id, changes = 0n } = parseMark(path);
  return (counters) => {
    if (id === undefined)
      return counters.keys_used === UNUSED
        ? undefined
        : `${path}-mark is missing or damaged, as beside a copy: if a server was writing when the file was copied, its last changes are missing`;
    const missing = changes - changesOf(counters);
    if (id === counters.id && missing <= 0n) return undefined;
    const reason =
      id !== counters.id
        ? `it is another store than that of ${path}-mark`
        : missing === 1n
          ? "its last change is missing"
          : `its last ${missing} changes are missing`;
    const remove = `remove ${quoteArgument(`${path}-mark`)} to go on with this file`;
    throw new PreconditionError(`${path}: ${reason}: ${waysOut(path, remove)}`);
  };
}
