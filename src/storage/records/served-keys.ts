import type { Key } from "../../credential/key.ts";
import { ChangingKeys } from "./key-table.ts";

const FLUSH_INTERVAL_MS = 60_000;

/** The API keys of a server. Writes their last uses once a minute, so that no request waits for a write. */
export abstract class ServedKeys extends ChangingKeys {
  /** Uses that are not written yet, by the id of the key. */
  #uses = new Map<string, number>();
  #timer: NodeJS.Timeout | undefined;

  override recordUse(id: string, usedAt: number): void {
    this.#uses.set(id, usedAt);
    this.#timer ??= setTimeout(() => this.flush(), FLUSH_INTERVAL_MS).unref();
  }

  /** Returns a stored key with its latest use, written or not. */
  protected withLatestUse(key: Key): Key {
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
      await this.change({ type: "recordUses", uses });
    } catch {
      // A failed write is not reported, because the uses are informational. The next flush retries them.
      for (const [id, usedAt] of uses) if (!this.#uses.has(id)) this.recordUse(id, usedAt);
    }
  }
}
