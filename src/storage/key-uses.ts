import type { Key } from "../credential/key.ts";

const KEPT_BACK_MS = 60_000;

/** When keys were used last: written a minute's uses at a time, so that no request waits for it. */
export class KeyUses {
  readonly #write: (uses: ReadonlyMap<string, number>) => Promise<unknown>;
  /** By the key's id, of what is not written yet. */
  #uses = new Map<string, number>();
  #timer: NodeJS.Timeout | undefined;

  constructor(write: (uses: ReadonlyMap<string, number>) => Promise<unknown>) {
    this.#write = write;
  }

  note(id: string, usedAt: number): void {
    this.#uses.set(id, usedAt);
    this.#timer ??= setTimeout(() => this.flush(), KEPT_BACK_MS).unref();
  }

  /** A stored key, with what is not written yet. */
  shown(key: Key): Key {
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
      // They are a courtesy: kept for the next time.
      for (const [id, usedAt] of uses) if (!this.#uses.has(id)) this.note(id, usedAt);
    }
  }
}
