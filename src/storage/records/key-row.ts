import { type Key, parentText, type StoredKey } from "../../credential/key.ts";
import { MAX_TIME_MS, validationError } from "../../validation.ts";

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
  /** What it was made with, as `madeWithText` returns it; null for the key of a client. */
  readonly made_with: string | null;
}

/** Returns the values of a row in the order of its columns. */
export function toValues(key: StoredKey): (string | number | Uint8Array | null)[] {
  const { id, name, tokenHash, createdAt, expiresAt = null, lastUsedAt = null, lifetime = null, scope } = key;
  return [id, name, tokenHash, createdAt, expiresAt, lastUsedAt, lifetime, scope, madeWithText(key) ?? null];
}

export function toStoredKey(row: KeyRow): StoredKey {
  const { id, name, token_hash, created_at, expires_at, last_used_at, lifetime, scope } = row;
  return {
    id,
    name,
    tokenHash: token_hash,
    // A damaged or unknown scope must not allow more.
    scope: scope === "write" ? "write" : "read",
    createdAt: Number(created_at),
    ...(expires_at !== null && { expiresAt: Number(expires_at) }),
    ...(lifetime !== null && { lifetime: Number(lifetime) }),
    // A damaged last use must not end a start, because it is only informational.
    ...(last_used_at !== null &&
      Math.abs(Number(last_used_at)) <= MAX_TIME_MS && { lastUsedAt: Number(last_used_at) }),
    ...(row.made_with !== null && (matchMadeWith(row.made_with) ?? UNKNOWN)),
  };
}

type MadeWith = Required<Pick<Key, "kind" | "parent">>;

/** A key that was made with something damaged or unknown is a link that never signs in, because no entry has this hash. */
const UNKNOWN: MadeWith = { kind: "link", parent: { kind: "client", name: "", entryHash: "unknown" } };

const LINK = "code:";

/**
 * Returns the kind and the parent of a key as one text, such as `key:ID`, `code:key:ID` or `user:HASH:NAME`. Rows and exports contain it.
 */
export const madeWithText = ({ kind, parent }: Pick<Key, "kind" | "parent">): string | undefined =>
  parent && (kind === "link" ? LINK : "") + parentText(parent);

const MADE_WITH = /^(code:)?(?:key:([\w-]{1,64})|(user|client):([\w-]*):(.*))$/s;

/** Parses the text. Throws `validation_failed` if it is invalid. */
export function parseMadeWith(text: unknown): MadeWith {
  const found = typeof text === "string" ? matchMadeWith(text) : undefined;
  if (found === undefined) throw validationError("parent", "must name a key, a user or a client");
  return found;
}

function matchMadeWith(text: string): MadeWith | undefined {
  const [match, link, id, owner, entryHash = "", name = ""] = MADE_WITH.exec(text) ?? [];
  if (match === undefined) return undefined;
  const kind = link === undefined ? "device" : "link";
  if (id !== undefined) return { kind, parent: { kind: "key", id } };
  return { kind, parent: { kind: owner === "user" ? "user" : "client", name, entryHash } };
}
