import type { Key, StoredKey } from "../../credential/key.ts";
import { MAX_TIME_MS } from "../../duration.ts";

/** A row of the table `keys`, the same in SQLite and PostgreSQL. */
export interface KeyRow {
  readonly id: string;
  readonly name: string;
  readonly token_hash: Uint8Array;
  readonly created_at: bigint;
  readonly expires_at: bigint | null;
  readonly last_used_at: bigint | null;
  readonly lifetime: bigint | null;
  readonly scope: string;
  readonly parent: string | null;
}

export const toStoredKey = (row: KeyRow): StoredKey => ({ ...toKey(row), tokenHash: row.token_hash });

/** Returns the values of a row in the order of its columns. */
export function toValues(key: StoredKey): (string | number | Uint8Array | null)[] {
  const { id, name, tokenHash, createdAt, expiresAt = null, lastUsedAt = null, lifetime = null } = key;
  return [id, name, tokenHash, createdAt, expiresAt, lastUsedAt, lifetime, key.scope, key.parent ?? null];
}

export function toKey(row: KeyRow): Key {
  const { id, name, created_at, expires_at, last_used_at, lifetime, scope, parent } = row;
  return {
    id,
    name,
    // A damaged or unknown scope must not allow more.
    scope: scope === "write" ? "write" : "read",
    createdAt: Number(created_at),
    ...(expires_at !== null && { expiresAt: Number(expires_at) }),
    ...(lifetime !== null && { lifetime: Number(lifetime) }),
    // A damaged last use must not end a start, because it is only informational.
    ...(last_used_at !== null &&
      Math.abs(Number(last_used_at)) <= MAX_TIME_MS && { lastUsedAt: Number(last_used_at) }),
    ...(parent !== null && { parent }),
  };
}
