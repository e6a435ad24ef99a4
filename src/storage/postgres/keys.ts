import type { SQL } from "bun";
import type { StoredKey } from "../../credential/key.ts";
import { decide, type KeyChange } from "../../credential/key-rules.ts";
import { type KeyRow, toStoredKey, toValues } from "../records/key-row.ts";
import { type KeySource, ServedKeys } from "../records/keys.ts";
import { type KeyStoreHandle, PRIMARY_DEFAULTS } from "../store.ts";
import { openPrimary, type Primary } from "./primary.ts";
import { ensureSchema } from "./schema.ts";

/** Opens only the API keys of a database. Throws an Error with the reason if it cannot be used. */
export function openPostgresKeys(url: string): Promise<KeyStoreHandle> {
  return openPrimary(url, PRIMARY_DEFAULTS, async (primary) => {
    await primary.run(ensureSchema);
    const keys = new ServedKeys(new PostgresKeys(primary));
    return { keys, close: () => keys.flush().then(() => primary.close()) };
  });
}

/** Returns the keys and the time of the database. */
const LOCK_KEYS = "SELECT k.*, todo_service.clock_ms() AS clock FROM todo_service.lock_keys() k";
/** The database sets the last column, `added`. */
const PUT_KEY =
  "SELECT todo_service.put_key(ROW($1, $2, $3, $4, $5, $6, $7, $8, $9, NULL)::todo_service.key_rows)";

/** Returns the API keys from the oldest to the newest. */
export const storedKeys = async (sql: SQL): Promise<StoredKey[]> =>
  (await sql.unsafe<KeyRow[]>("SELECT * FROM todo_service.list_keys()")).map(toStoredKey);

/** Adds an API key, or changes the one with its id. */
export async function putKey(sql: SQL, key: StoredKey): Promise<void> {
  await sql.unsafe(PUT_KEY, toValues(key));
}

/** The API keys of a database. Each lookup queries it, so all replicas reject a revoked key immediately. */
export class PostgresKeys implements KeySource {
  readonly #primary: Primary;

  constructor(primary: Primary) {
    this.#primary = primary;
  }

  async find(tokenHash: Uint8Array): Promise<StoredKey | undefined> {
    const [row] = await this.#primary.query<KeyRow>("SELECT * FROM todo_service.find_key($1)", [tokenHash]);
    return row === undefined ? undefined : toStoredKey(row);
  }

  stored(): Promise<StoredKey[]> {
    return this.#primary.run(storedKeys);
  }

  change(change: KeyChange): Promise<boolean> {
    return this.#primary.run((sql) =>
      sql.begin(async (transaction) => {
        const rows = await transaction.unsafe<(KeyRow & { readonly clock: bigint })[]>(LOCK_KEYS);
        const keys = new Map(rows.map((row) => [row.id, toStoredKey(row)]));
        const difference = decide(keys, change, Number(rows[0]?.clock ?? 0));
        if (difference === undefined) return false;
        const removed = [...difference.remove].join(" ");
        // Sent without a wait in between, because all other changes of keys wait for the lock.
        await Promise.all([
          transaction.unsafe("SELECT todo_service.delete_keys($1)", [removed]),
          ...difference.put.map((key) => putKey(transaction, key)),
        ]);
        return true;
      }),
    );
  }
}
