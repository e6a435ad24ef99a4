import { hash, timingSafeEqual } from "node:crypto";
import { parseDuration } from "../duration.ts";
import type { Identity, Scope } from "./client.ts";
import { isExpired, type Key, type KeyStore, LINK_PREFIX, type MintedKey, mintKey } from "./key.ts";
import { hashToken, mintToken, randomBase62 } from "./token.ts";

/** How long a browser stays signed in without a use, in milliseconds. */
export const SESSION_LIFETIME_MS = parseDuration("lifetime", "90d");
/** How long a browser stays signed in whose user or client has no stored entry, so that a change cannot be detected. */
const UNCHECKED_LIFETIME_MS = parseDuration("lifetime", "24h");
const LINK_LIFETIME_MS = parseDuration("lifetime", "10m");
const MAX_SESSIONS = 20;
const MAX_LINKS = 5;
/** 131 random bits. */
const CODE_CHARACTERS = 22;

/**
 * Returns what is stored about a user or a client, such as a password hash, or `undefined`. A changed entry signs out the
 * browsers that signed in with it. It appears in the store as a hash only.
 */
export type StoredEntry = (kind: Identity["kind"], name: string) => string | undefined;

/** What a browser's key is made with, and what it may do at most. */
export interface Parent {
  /** `key:ID`, or `user:HASH:NAME` or `client:HASH:NAME` with the hash of the stored entry. */
  readonly parent: string;
  readonly scope: Scope;
}

/** With what a browser signs in. */
export interface SignIn extends Parent {
  /** The id of the link, if it signs in with one. */
  readonly linkId?: string;
}

/** A user or a client of the clients file, as the parent of a key. The hash is empty if nothing is stored. */
const ENTRY = /^(user|client):([\w-]{43}|):(.+)$/s;

/** Returns whether an imported text can be the parent of a key. */
export const isParent = (value: unknown): value is string =>
  typeof value === "string" && /^(?:code:)?(?:key:[\w-]{1,64}$|(?:user|client):(?:[\w-]{43})?:)/.test(value);

/** Returns the parent of the keys that an identity makes: its own parent if it is a browser. */
export function getParent({ kind, name, keyId, parent, scope }: Identity, storedEntry: StoredEntry): Parent {
  const own = keyId === undefined ? `${kind}:${entryHash(storedEntry(kind, name))}:${name}` : `key:${keyId}`;
  return { parent: parent ?? own, scope };
}

/** Returns whether a user or a client is unchanged since a key was made with it. Stores delete the keys of a deleted key. */
export function isCurrent(parent: string, storedEntry: StoredEntry): boolean {
  const [, kind, entry, name = ""] = ENTRY.exec(parent) ?? [];
  if (kind !== "user" && kind !== "client") return parent.startsWith("key:");
  return entryHash(storedEntry(kind, name)) === entry;
}

const entryHash = (entry: string | undefined): string =>
  entry === undefined ? "" : hash("sha256", entry, "base64url");

/** Returns the name of the user or of the client to which the key of a browser belongs. */
export const getOwner = (parent: string, all: readonly Key[]): string =>
  ENTRY.exec(parent)?.[3] ?? parentKey(parent, all)?.name ?? "";

export const getKind = (parent: string): Identity["kind"] => (parent.startsWith("user:") ? "user" : "client");

/** Returns whether nothing is stored about a user or a client, so that a change cannot end its browsers. */
export const isUnchecked = (parent: string): boolean => /^\w+::/.test(parent);

const parentKey = (parent: string, all: readonly Key[]): Key | undefined =>
  all.find(({ id }) => parent === `key:${id}`);

/**
 * Makes the key of a browser, and deletes the oldest ones of the same parent beyond 20. Returns `undefined` if the parent or
 * the link is no longer valid. A link is used up only when the key exists, so a failure of the store leaves the link valid.
 * @param browser its name, which gets a number if another key has it
 */
export async function createSession(
  keys: KeyStore,
  { parent, scope, linkId }: SignIn,
  browser: string,
  now: number,
): Promise<(MintedKey & { readonly owner: string }) | undefined> {
  const lifetime = isUnchecked(parent) ? UNCHECKED_LIFETIME_MS : SESSION_LIFETIME_MS;
  let unusedLink = linkId;
  for (;;) {
    const all = await keys.list();
    const limit = getExpiry(parent, all, now);
    if (limit === undefined) return undefined;
    const names = new Set(all.map(({ name }) => name));
    let name = browser;
    for (let number = 2; names.has(name); number++) name = `${browser} ${number}`;
    const expiresAt = Math.min(now + lifetime, limit);
    const minted = mintKey(mintToken(), {
      ...{ name, scope, parent, createdAt: now, expiresAt },
      // A use renews only keys with a lifetime.
      ...(!isUnchecked(parent) && { lifetime }),
    });
    if (!(await keys.insert(minted.stored))) continue;
    let isAllowed = false;
    try {
      // Only one request can delete the link, on any replica.
      isAllowed = unusedLink === undefined || (await keys.delete(unusedLink));
    } finally {
      if (!isAllowed) await keys.delete(minted.key.id);
    }
    if (!isAllowed) return undefined;
    unusedLink = undefined;
    const after = await keys.list();
    if (getExpiry(parent, after, now) === limit) {
      await trim(keys, after, parent, MAX_SESSIONS);
      return { ...minted, owner: getOwner(parent, after) };
    }
    // The parent was revoked or rotated meanwhile.
    await keys.delete(minted.key.id);
  }
}

/** Returns when a parent expires, or `undefined` if it is a key that is no longer valid. */
function getExpiry(parent: string, all: readonly Key[], now: number): number | undefined {
  if (!parent.startsWith("key:")) return Number.POSITIVE_INFINITY;
  const key = parentKey(parent, all);
  return key === undefined || isExpired(key, now) ? undefined : (key.expiresAt ?? Number.POSITIVE_INFINITY);
}

/** Deletes the oldest keys of a parent beyond a number. */
async function trim(keys: KeyStore, all: readonly Key[], parent: string, max: number): Promise<void> {
  const own = all.filter((key) => key.parent === parent);
  for (const { id } of own.slice(0, Math.max(0, own.length - max))) await keys.delete(id);
}

/**
 * Deletes the key of a browser, and then the links of its parent that were not used, because the browser may have made one.
 * Returns whether the key existed.
 */
export async function endSession(keys: KeyStore, id: string, parent: string): Promise<boolean> {
  const existed = await keys.delete(id);
  // A link that is made from now on finds that its maker is gone, and one that was made before is in this list.
  await trim(keys, await keys.list(), LINK_PREFIX + parent, 0);
  return existed;
}

/**
 * Makes a code that signs in one browser, once, within ten minutes, and deletes the oldest ones of the same parent beyond 5.
 * Only its hash is stored. Returns `undefined`, and no link, if its maker was signed out or revoked meanwhile.
 * @param makerId the id of the key that makes the link, or `undefined` for a user
 */
export async function createLink(
  keys: KeyStore,
  { parent, scope }: Parent,
  makerId: string | undefined,
  now: number,
) {
  const code = randomBase62(CODE_CHARACTERS);
  const expiresAt = now + LINK_LIFETIME_MS;
  const fields = { name: `link ${randomBase62(CODE_CHARACTERS)}`, scope, createdAt: now, expiresAt };
  const { key, stored } = mintKey(code, { ...fields, parent: LINK_PREFIX + parent });
  await keys.insert(stored);
  const all = await keys.list();
  if (makerId !== undefined && !all.some(({ id }) => id === makerId)) {
    await keys.delete(key.id);
    return undefined;
  }
  await trim(keys, all, LINK_PREFIX + parent, MAX_LINKS);
  return { code, expiresAt };
}

/** Returns what a code signs in to; `undefined` if the code is not valid, or its user or client has changed. */
export async function findLink(
  keys: KeyStore,
  code: string,
  storedEntry: StoredEntry,
  now: number,
): Promise<Required<SignIn> | undefined> {
  const tokenHash = hashToken(code);
  const link = await keys.find(tokenHash);
  if (link === undefined || !timingSafeEqual(link.tokenHash, tokenHash)) return undefined;
  const { id: linkId, scope } = link;
  if (link.parent?.startsWith(LINK_PREFIX) !== true || isExpired(link, now)) return undefined;
  const parent = link.parent.slice(LINK_PREFIX.length);
  return isCurrent(parent, storedEntry) ? { linkId, parent, scope } : undefined;
}

/** Returns whom a code signs in; `undefined` if the code or its parent is not valid. */
export async function describeLink(keys: KeyStore, code: string, storedEntry: StoredEntry, now: number) {
  const link = await findLink(keys, code, storedEntry, now);
  const all = await keys.list();
  if (link === undefined || getExpiry(link.parent, all, now) === undefined) return undefined;
  return { kind: getKind(link.parent), name: getOwner(link.parent, all) };
}
