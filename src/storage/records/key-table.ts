import type { StoredKey } from "../../credential/key.ts";
import { decide, type KeyChange } from "../../credential/key-rules.ts";
import type { KeySource } from "./served-keys.ts";

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
