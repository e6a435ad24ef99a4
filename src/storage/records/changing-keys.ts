import type { Awaitable } from "../../awaitable.ts";
import type { StoredKey } from "../../credential/key.ts";
import type { KeyChange } from "../../credential/key-rules.ts";

/** The calls of a `KeyStore` that change keys at once, as one function. */
export abstract class ChangingKeys {
  /** Returns whether the rules allow the change. */
  protected abstract change(change: KeyChange): Awaitable<boolean>;

  insert(key: StoredKey, usedLink?: string): Awaitable<boolean> {
    return this.change({ type: "insert", key, usedLink });
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
}
