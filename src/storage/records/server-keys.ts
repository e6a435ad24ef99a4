import type { Key, KeyStore, StoredKey } from "../../credential/key.ts";
import type { KeyChange } from "../../credential/key-rules.ts";
import { KeyTable } from "./key-table.ts";
import { ServedKeys } from "./served-keys.ts";

/** The API keys of a store that another thread writes. They are in memory, so that no request waits for the disk. */
export class ServerKeys extends ServedKeys implements KeyStore {
  readonly #write: (change: KeyChange) => Promise<boolean>;
  #table = new KeyTable();

  /** @param write sends a change to the writer thread, which decides it; `update` is called before it resolves */
  constructor(write: (change: KeyChange) => Promise<boolean>) {
    super();
    this.#write = write;
  }

  find(tokenHash: Uint8Array): StoredKey | undefined {
    return this.#table.find(tokenHash);
  }

  list(): Key[] {
    return this.#table.list().map((key) => this.withLatestUse(key));
  }

  /** The API keys with the hashes of their tokens. */
  get stored(): readonly StoredKey[] {
    return this.#table.stored();
  }

  /** Replaces all keys, because this server or a command has changed them. */
  update(stored: readonly StoredKey[]): void {
    this.#table = new KeyTable(stored);
  }

  protected change(change: KeyChange): Promise<boolean> {
    return this.#write(change);
  }
}
