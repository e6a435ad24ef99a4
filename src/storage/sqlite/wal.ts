/** The WAL and its index in shared memory (https://www.sqlite.org/walformat.html), and the guard of its checkpoints. */
import type { Database } from "bun:sqlite";
import { closeSync, fstatSync, openSync, readSync } from "node:fs";
import type { FileIdentity } from "./files.ts";

const WAL_HEADER_BYTES = 32;
const FRAME_HEADER_BYTES = 24;
const INDEX_HEADER_BYTES = 48;

/** The WAL of an open store. Its descriptors stay open, because closing that of the index would drop SQLite's locks. */
export class Wal {
  readonly identity: FileIdentity;
  readonly indexIdentity: FileIdentity;
  /** The numbers of the pages in the WAL with their latest frame, as the last check found them. */
  readonly pages = new Map<number, number>();
  readonly #wal: number;
  readonly #index: number;
  /** The number of frames that the last check found. */
  #checked = 0;
  /** Differ for each time that SQLite has started the WAL again. */
  #salts = Buffer.alloc(0);

  /** @param path the path of the store */
  constructor(path: string) {
    this.#wal = openSync(`${path}-wal`, "r");
    this.#index = openSync(`${path}-shm`, "r");
    this.identity = fstatSync(this.#wal, { bigint: true });
    this.indexIdentity = fstatSync(this.#index, { bigint: true });
  }

  /** The number of committed frames. Takes less than a microsecond. */
  get frameCount(): number {
    return this.#readIndex().readUInt32LE(16);
  }

  /**
   * Returns whether the WAL has all frames of its index, and ends with the last one. A checkpoint would move missing ones as
   * zeros. Reads only the last one of the frames that an earlier call has found, because every change but one in the middle
   * removes it.
   */
  hasAllFrames(): boolean {
    // Integers are in the byte order of the machine, but the salts are copied from the WAL.
    const index = this.#readIndex();
    const count = index.readUInt32LE(16);
    if (count === 0) return true;
    const salts = Buffer.from(index.subarray(32, 40));
    const header = readAt(this.#wal, 0, WAL_HEADER_BYTES);
    if (!salts.equals(header.subarray(16, 24))) return false;
    const pageSize = header.readUInt32BE(8);
    const isContinued = salts.equals(this.#salts) && count >= this.#checked;
    const first = isContinued ? Math.max(this.#checked - 1, 0) : 0;
    if (first === 0) this.pages.clear();
    let frame = header;
    for (let i = first; i < count; i++) {
      frame = readAt(this.#wal, frameOffset(i, pageSize), FRAME_HEADER_BYTES);
      if (!salts.equals(frame.subarray(8, 16))) return false;
      this.pages.set(frame.readUInt32BE(0), i);
    }
    // The checksum of a frame covers all frames before it.
    if (
      frame.readUInt32BE(16) !== index.readUInt32LE(24) ||
      frame.readUInt32BE(20) !== index.readUInt32LE(28)
    )
      return false;
    this.#checked = count;
    this.#salts = salts;
    return true;
  }

  /** Reads the latest version of a page that is in the WAL. */
  readPage(page: number, pageSize: number): Buffer {
    const offset = frameOffset(this.pages.get(page) ?? 0, pageSize);
    return readAt(this.#wal, offset + FRAME_HEADER_BYTES, pageSize);
  }

  /** To be called when no connection of this process is open. */
  close(): void {
    closeSync(this.#index);
    closeSync(this.#wal);
  }

  #readIndex(): Buffer {
    return readAt(this.#index, 0, INDEX_HEADER_BYTES);
  }
}

const frameOffset = (frame: number, pageSize: number): number =>
  WAL_HEADER_BYTES + frame * (FRAME_HEADER_BYTES + pageSize);

/** Reads bytes at a position of a file; fewer at its end. */
function readAt(descriptor: number, position: number, length: number): Buffer {
  const bytes = Buffer.allocUnsafe(length);
  return bytes.subarray(0, readSync(descriptor, bytes, { position }));
}

/** How many pages a checkpoint compares of each kind. 128 pages take 0.2 ms. */
const SAMPLE_SIZE = 128;

/**
 * Notices an old copy that another program writes over the database during a checkpoint, when the time of the file cannot show
 * it. Its descriptor of the database stays open, because closing it would drop SQLite's locks.
 */
export class CheckpointGuard {
  readonly #wal: Wal;
  readonly #descriptor: number;
  readonly #pageSize: number;
  /** Pages that earlier checkpoints have written, the latest last. An old copy has other ones. */
  #recent: readonly number[] = [];

  constructor(path: string, wal: Wal, connection: Database) {
    this.#wal = wal;
    this.#descriptor = openSync(path, "r");
    this.#pageSize = Number(connection.query<{ page_size: bigint }, []>("PRAGMA page_size").get()?.page_size);
  }

  /**
   * To be called before a checkpoint. Returns a function to be called after it, which returns whether nobody else has written to
   * the database. Its parameter says whether the whole WAL is in the database.
   */
  begin(): (isComplete: boolean) => boolean {
    const { pages } = this.#wal;
    const others = this.#sample();
    const before = others.map((page) => this.#hash(page));
    return (isComplete) => {
      const areKept = others.every((page, i) => this.#hash(page) === before[i]);
      if (!isComplete || pages.size === 0) return areKept;
      const recent = this.#recent.filter((page) => !pages.has(page));
      this.#recent = [...recent, ...pages.keys()].slice(-SAMPLE_SIZE);
      // SQLite writes the pages in order, so an old copy that came after the first page has another one.
      const first = Math.min(...pages.keys());
      return areKept && this.#read(first).equals(this.#wal.readPage(first, this.#pageSize));
    };
  }

  /** To be called when no connection of this process is open. */
  close(): void {
    closeSync(this.#descriptor);
  }

  /** Returns pages that the checkpoint does not write. */
  #sample(): number[] {
    const count = Math.floor(fstatSync(this.#descriptor).size / this.#pageSize);
    const random = Array.from({ length: Math.min(SAMPLE_SIZE, count) }, (_, i) =>
      count <= SAMPLE_SIZE ? i + 1 : 1 + Math.floor(Math.random() * count),
    );
    return [...this.#recent, ...random].filter((page) => !this.#wal.pages.has(page));
  }

  #read(page: number): Buffer {
    return readAt(this.#descriptor, (page - 1) * this.#pageSize, this.#pageSize);
  }

  #hash(page: number): number | bigint {
    return Bun.hash(this.#read(page));
  }
}
