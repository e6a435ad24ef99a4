import type { Awaitable } from "../../awaitable.ts";
import type { EndedKeys, Key, KeyStore, StoredKey } from "../../credential/key.ts";
import { decide, type KeyChange } from "../../credential/key-rules.ts";

const FLUSH_INTERVAL_MS = 60_000;

/** Where a store has its API keys. */
export interface KeySource {
  find(tokenHash: Uint8Array): Awaitable<StoredKey | undefined>;
  /** Returns the keys from the oldest to the newest. */
  stored(): Awaitable<readonly StoredKey[]>;
  /** Returns whether the rules allow the change. */
  change(change: KeyChange): Awaitable<boolean>;
}

/** The API keys of a store. Writes their last uses once a minute, so that no request waits for a write. */
export class ServedKeys implements KeyStore {
  readonly #source: KeySource;
  /** Uses that are not written yet, by the id of the key. */
  #uses = new Map<string, number>();
  #timer: NodeJS.Timeout | undefined;

  constructor(source: KeySource) {
    this.#source = source;
  }

  find(tokenHash: Uint8Array): Awaitable<StoredKey | undefined> {
    return this.#source.find(tokenHash);
  }

  /** Returns the keys with their latest uses, written or not. */
  async list(): Promise<Key[]> {
    const stored = await this.#source.stored();
    return stored.map(({ tokenHash: _, ...key }) => {
      const lastUsedAt = this.#uses.get(key.id);
      return lastUsedAt === undefined ? key : { ...key, lastUsedAt };
    });
  }

  insert(key: StoredKey, ended?: EndedKeys): Awaitable<boolean> {
    return this.#source.change({ type: "insert", key, ended });
  }

  replace(id: string, expiresAt: number, successor: StoredKey): Awaitable<boolean> {
    return this.#source.change({ type: "replace", id, expiresAt, successor });
  }

  delete(id: string): Awaitable<boolean> {
    return this.#source.change({ type: "delete", id });
  }

  rename(id: string, name: string): Awaitable<boolean> {
    return this.#source.change({ type: "rename", id, name });
  }

  recordUse(id: string, usedAt: number): void {
    this.#uses.set(id, usedAt);
    this.#timer ??= setTimeout(() => this.flush(), FLUSH_INTERVAL_MS).unref();
  }

  async flush(): Promise<void> {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    const uses = this.#uses;
    if (uses.size === 0) return;
    this.#uses = new Map();
    try {
      await this.#source.change({ type: "recordUses", uses });
    } catch {
      // A failed write is not reported, because the uses are informational. The next flush retries them.
      for (const [id, usedAt] of uses) if (!this.#uses.has(id)) this.recordUse(id, usedAt);
    }
  }
}

/** API keys in memory, by id and by the hash of their token. */
export class KeyTable implements KeySource {
  /** In order of insertion. */
  readonly #keys = new Map<string, StoredKey>();
  readonly #byHash = new Map<string, StoredKey>();

  constructor(keys: Iterable<StoredKey> = []) {
    for (const key of keys) this.#put(key);
  }

  find(tokenHash: Uint8Array): StoredKey | undefined {
    return this.#byHash.get(latin1(tokenHash));
  }

  stored(): StoredKey[] {
    return [...this.#keys.values()].sort((one, other) => one.createdAt - other.createdAt);
  }

  change(change: KeyChange): boolean {
    const difference = decide(this.#keys, change);
    for (const id of difference?.remove ?? []) this.#remove(id);
    for (const key of difference?.put ?? []) this.#put(key);
    return difference !== undefined;
  }

  #put(key: StoredKey): void {
    this.#keys.set(key.id, key);
    this.#byHash.set(latin1(key.tokenHash), key);
  }

  #remove(id: string): void {
    const key = this.#keys.get(id);
    if (key !== undefined) this.#byHash.delete(latin1(key.tokenHash));
    this.#keys.delete(id);
  }
}

const latin1 = (bytes: Uint8Array): string => Buffer.from(bytes).toString("latin1");
