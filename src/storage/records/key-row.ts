import type { Parent } from "../../credential/client.ts";
import { type Key, parentText, type StoredKey } from "../../credential/key.ts";
import { MAX_TIME_MS } from "../../duration.ts";
import { validationError } from "../../validation.ts";

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
  /** `client`, `device` or `link`. */
  readonly kind: string;
  /** The id of the key with which this one was made. */
  readonly parent: string | null;
  /** Otherwise the user or the client without an API key with which it was made; all null for the key of a client. */
  readonly owner_kind: string | null;
  readonly owner_name: string | null;
  readonly owner_hash: string | null;
}

export const toStoredKey = (row: KeyRow): StoredKey => ({ ...toKey(row), tokenHash: row.token_hash });

/** Returns the values of a row in the order of its columns. */
export function toValues(key: StoredKey): (string | number | Uint8Array | null)[] {
  const { id, name, tokenHash, createdAt, expiresAt = null, lastUsedAt = null, lifetime = null } = key;
  const { scope, kind = "client", parent } = key;
  const made = parent?.kind === "key" ? [parent.id, null, null, null] : [null, ...ownerValues(parent)];
  return [id, name, tokenHash, createdAt, expiresAt, lastUsedAt, lifetime, scope, kind, ...made];
}

const ownerValues = (owner?: Exclude<Parent, { readonly kind: "key" }>) =>
  owner === undefined ? [null, null, null] : [owner.kind, owner.name, owner.entryHash];

export function toKey(row: KeyRow): Key {
  const { id, name, created_at, expires_at, last_used_at, lifetime, scope } = row;
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
    ...toMadeWith(row),
  };
}

/** A key of a damaged or unknown kind is a link, which must not sign in. */
function toMadeWith(row: KeyRow): Pick<Key, "kind" | "parent"> {
  if (row.kind === "client") return {};
  const ownerKind = row.owner_kind === "user" ? "user" : "client";
  const owner = { kind: ownerKind, name: row.owner_name ?? "", entryHash: row.owner_hash ?? "" } as const;
  const parent = row.parent === null ? owner : ({ kind: "key", id: row.parent } as const);
  return { kind: row.kind === "device" ? "device" : "link", parent };
}

const LINK = "code:";

/**
 * Returns the kind and the parent of a key as one text, such as `key:ID`, `code:key:ID` or `user:HASH:NAME`. Exports contain it.
 */
export const madeWithText = ({ kind, parent }: Pick<Key, "kind" | "parent">): string | undefined =>
  parent && (kind === "link" ? LINK : "") + parentText(parent);

const MADE_WITH = /^(code:)?(?:key:([\w-]{1,64})|(user|client):([\w-]*):(.*))$/s;

/** Parses the text. Throws `validation_failed` if it is invalid. */
export function parseMadeWith(text: unknown): Required<Pick<Key, "kind" | "parent">> {
  const [match, link, id, owner, entryHash = "", name = ""] =
    (typeof text === "string" && MADE_WITH.exec(text)) || [];
  if (match === undefined) throw validationError("parent", "must name a key, a user or a client");
  const kind = link === undefined ? "device" : "link";
  if (id !== undefined) return { kind, parent: { kind: "key", id } };
  return { kind, parent: { kind: owner === "user" ? "user" : "client", name, entryHash } };
}
