import type { Key } from "../../credential/key.ts";

const FLUSH_INTERVAL_MS = 60_000;

/** The last use of each API key. Writes all uses once a minute, so that no request waits for a write. */
export class KeyUsage {
  readonly #write: (uses: ReadonlyMap<string, number>) => Promise<unknown>;
  /** Uses that are not written yet, by the id of the key. */
  #uses = new Map<string, number>();
  #timer: NodeJS.Timeout | undefined;

  constructor(write: (uses: ReadonlyMap<string, number>) => Promise<unknown>) {
    this.#write = write;
  }

  record(id: string, usedAt: number): void {
    this.#uses.set(id, usedAt);
    this.#timer ??= setTimeout(() => this.flush(), FLUSH_INTERVAL_MS).unref();
  }

  /** Returns a stored key with its latest use, written or not. */
  withLatest(key: Key): Key {
    const lastUsedAt = this.#uses.get(key.id);
    return lastUsedAt === undefined ? key : { ...key, lastUsedAt };
  }

  async flush(): Promise<void> {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    const uses = this.#uses;
    if (uses.size === 0) return;
    this.#uses = new Map();
    try {
      await this.#write(uses);
    } catch {
      // A failed write is not reported, because the uses are informational. The next flush retries them.
      for (const [id, usedAt] of uses) if (!this.#uses.has(id)) this.record(id, usedAt);
    }
  }
}
