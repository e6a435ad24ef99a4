import type { Awaitable } from "../../awaitable.ts";
import type { EndedKeys, Key, KeyStore, StoredKey } from "../../credential/key.ts";
import { decide, type KeyChange } from "../../credential/key-rules.ts";

/** The calls of a `KeyStore` that change keys, as one function. */
export abstract class ChangingKeys {
  /** Returns whether the rules allow the change. */
  protected abstract change(change: KeyChange): Awaitable<boolean>;

  insert(key: StoredKey, ended?: EndedKeys): Awaitable<boolean> {
    return this.change({ type: "insert", key, ended });
  }

  replace(id: string, expiresAt: number, successor: StoredKey): Awaitable<boolean> {
    return this.change({ type: "replace", id, expiresAt, successor });
  }

  delete(id: string): Awaitable<boolean> {
    return this.change({ type: "delete", id });
  }

  rename(id: string, name: string): Awaitable<boolean> {
    return this.change({ type: "rename", id, name });
  }

  recordUse(id: string, usedAt: number): void {
    this.change({ type: "recordUses", uses: new Map([[id, usedAt]]) });
  }
}

/** API keys in memory, by id and by the hash of their token. */
export class KeyTable extends ChangingKeys implements KeyStore {
  /** In order of insertion. */
  readonly #keys = new Map<string, StoredKey>();
  readonly #byHash = new Map<string, StoredKey>();

  constructor(keys: Iterable<StoredKey> = []) {
    super();
    for (const key of keys) this.#put(key);
  }

  find(tokenHash: Uint8Array): StoredKey | undefined {
    return this.#byHash.get(latin1(tokenHash));
  }

  /** Returns the keys from the oldest to the newest. */
  stored(): StoredKey[] {
    return [...this.#keys.values()].sort((one, other) => one.createdAt - other.createdAt);
  }

  list(): Key[] {
    return this.stored().map(({ tokenHash: _, ...key }) => key);
  }

  protected change(change: KeyChange): boolean {
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
