import { EXPIRED_KEPT_MS, type Key, type KeyStore, type StoredKey } from "../../credential/key.ts";
import type { Primary, Value } from "./primary.ts";

const USES_KEPT_BACK_MS = 60_000;

interface Row {
  readonly id: string;
  readonly name: string;
  readonly token_hash: Uint8Array;
  readonly created_at: bigint;
  readonly expires_at: bigint | null;
  readonly last_used_at: bigint | null;
}

/** The keys of a database. Each look-up asks it: a key revoked by any replica is refused by all at once. */
export class PostgresKeys implements KeyStore {
  readonly #primary: Primary;
  /** When keys were used last, of what is not written yet. */
  #uses = new Map<string, number>();
  #timer: NodeJS.Timeout | undefined;

  constructor(primary: Primary) {
    this.#primary = primary;
  }

  async find(tokenHash: Uint8Array): Promise<StoredKey | undefined> {
    const [row] = await this.#primary.query<Row>("SELECT * FROM todo_service.keys WHERE token_hash = $1", [
      tokenHash,
    ]);
    return row === undefined ? undefined : { ...keyOf(row), tokenHash: row.token_hash };
  }

  async list(): Promise<Key[]> {
    const rows = await this.#primary.query<Row>("SELECT * FROM todo_service.keys ORDER BY created_at, added");
    return rows.map(keyOf).map((key) => {
      const lastUsedAt = this.#uses.get(key.id);
      return lastUsedAt === undefined ? key : { ...key, lastUsedAt };
    });
  }

  insert(key: StoredKey): Promise<boolean> {
    return this.#changes("SELECT todo_service.insert_key($1, $2, $3, $4, $5, $6, $7) AS done", valuesOf(key));
  }

  replace(id: string, expiresAt: number, successor: StoredKey): Promise<boolean> {
    const values = [...valuesOf(successor), id, expiresAt];
    return this.#changes(
      "SELECT todo_service.replace_key($1, $2, $3, $4, $5, $6, $7, $8, $9) AS done",
      values,
    );
  }

  delete(id: string): Promise<boolean> {
    return this.#changes(
      "WITH gone AS (DELETE FROM todo_service.keys WHERE id = $1 RETURNING id) SELECT EXISTS (SELECT FROM gone) AS done",
      [id],
    );
  }

  touch(id: string, usedAt: number): void {
    this.#uses.set(id, usedAt);
    this.#timer ??= setTimeout(() => this.#writeUses(), USES_KEPT_BACK_MS).unref();
  }

  close(): Promise<void> {
    return this.#writeUses();
  }

  async #changes(query: string, values: readonly Value[]): Promise<boolean> {
    const [row] = await this.#primary.query<{ done: boolean }>(query, values);
    return row?.done === true;
  }

  async #writeUses(): Promise<void> {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    const uses = this.#uses;
    if (uses.size === 0) return;
    this.#uses = new Map();
    try {
      await this.#primary.query(
        `UPDATE todo_service.keys k SET last_used_at = greatest(k.last_used_at, u.used_at)
         FROM unnest(string_to_array($1, ' '), string_to_array($2, ' ')::bigint[]) AS u (id, used_at) WHERE k.id = u.id`,
        [[...uses.keys()].join(" "), [...uses.values()].join(" ")],
      );
    } catch {
      // They are a courtesy: kept for the next time.
      for (const [id, usedAt] of uses) if (!this.#uses.has(id)) this.touch(id, usedAt);
    }
  }
}

function valuesOf({ id, name, tokenHash, createdAt, expiresAt, lastUsedAt }: StoredKey): Value[] {
  return [id, name, tokenHash, createdAt, expiresAt ?? null, lastUsedAt ?? null, createdAt - EXPIRED_KEPT_MS];
}

function keyOf({ id, name, created_at, expires_at, last_used_at }: Row): Key {
  return {
    id,
    name,
    createdAt: Number(created_at),
    ...(expires_at !== null && { expiresAt: Number(expires_at) }),
    ...(last_used_at !== null && { lastUsedAt: Number(last_used_at) }),
  };
}
