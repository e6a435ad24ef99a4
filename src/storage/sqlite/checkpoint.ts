import type { Database } from "bun:sqlite";
import { closeSync, fstatSync, openSync } from "node:fs";
import { readAt, type Wal } from "./wal.ts";

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
