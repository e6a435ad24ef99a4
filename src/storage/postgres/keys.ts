import type { Key, KeyStore, StoredKey } from "../../credential/key.ts";
import { type KeyRow, toKey, toStoredKey, toValues } from "../records/key-row.ts";
import { KeyUsage } from "../records/key-usage.ts";
import { type KeyStoreHandle, PRIMARY_DEFAULTS } from "../store.ts";
import { openPrimary, type Primary, type Value } from "./primary.ts";
import { ensureSchema } from "./schema.ts";

/** Opens only the API keys of a database. Throws an Error with the reason if it cannot be used. */
export function openPostgresKeys(url: string): Promise<KeyStoreHandle> {
  return openPrimary(url, PRIMARY_DEFAULTS, async (primary) => {
    await primary.run(ensureSchema);
    const keys = new PostgresKeys(primary);
    return { keys, close: () => keys.close().then(() => primary.close()) };
  });
}

/** The first parameters of a query, which `toValues` returns, as a row of the table. The database sets the column `added`. */
export const KEY = "ROW($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, NULL)::todo_service.keys";

/** The API keys of a database. Each lookup queries it, so all replicas reject a revoked key immediately. */
export class PostgresKeys implements KeyStore {
  readonly #primary: Primary;
  readonly #uses: KeyUsage;

  constructor(primary: Primary) {
    this.#primary = primary;
    this.#uses = new KeyUsage((uses) => this.#write(uses));
  }

  async find(tokenHash: Uint8Array): Promise<StoredKey | undefined> {
    const [row] = await this.#primary.query<KeyRow>("SELECT * FROM todo_service.find_key($1)", [tokenHash]);
    return row === undefined ? undefined : toStoredKey(row);
  }

  async list(): Promise<Key[]> {
    const rows = await this.#primary.query<KeyRow>("SELECT * FROM todo_service.list_keys()");
    return rows.map((row) => this.#uses.withLatest(toKey(row)));
  }

  insert(key: StoredKey, usedLink?: string): Promise<boolean> {
    const query = `SELECT todo_service.insert_key(${KEY}, $14) AS done`;
    return this.#changes(query, [...toValues(key), usedLink ?? null]);
  }

  replace(id: string, expiresAt: number, successor: StoredKey): Promise<boolean> {
    const query = `SELECT todo_service.replace_key(${KEY}, $14, $15) AS done`;
    return this.#changes(query, [...toValues(successor), id, expiresAt]);
  }

  delete(id: string): Promise<boolean> {
    return this.#changes("SELECT todo_service.delete_key($1) AS done", [id]);
  }

  rename(id: string, name: string): Promise<boolean> {
    return this.#changes("SELECT todo_service.rename_key($1, $2) AS done", [id, name]);
  }

  recordUse(id: string, usedAt: number): void {
    this.#uses.record(id, usedAt);
  }

  close(): Promise<void> {
    return this.#uses.flush();
  }

  async #changes(query: string, values: readonly Value[]): Promise<boolean> {
    const [row] = await this.#primary.query<{ done: boolean }>(query, values);
    return row?.done === true;
  }

  async #write(uses: ReadonlyMap<string, number>): Promise<void> {
    await this.#primary.query("SELECT todo_service.record_key_uses($1, $2)", [
      [...uses.keys()].join(" "),
      [...uses.values()].join(" "),
    ]);
  }
}
