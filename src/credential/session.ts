import { hash } from "node:crypto";
import { deviceName, MAX_LABEL_LENGTH } from "../device-name.ts";
import { ServiceError } from "../error.ts";
import { parseDuration } from "../validation.ts";
import type { Identity, Parent, Scope } from "./client.ts";
import {
  findByToken,
  isExpired,
  isSameParent,
  type Key,
  type KeyStore,
  type MintedKey,
  mintKey,
  parseKeyName,
} from "./key.ts";
import { mintToken, randomBase62 } from "./token.ts";

/** How long a browser stays signed in without a use, in milliseconds. */
export const SESSION_LIFETIME_MS = parseDuration("lifetime", "90d");
/** How long a browser stays signed in whose user or client has no stored entry, so that a change cannot be detected. */
const UNCHECKED_LIFETIME_MS = parseDuration("lifetime", "24h");
const LINK_LIFETIME_MS = parseDuration("lifetime", "10m");
/** 131 random bits. */
const CODE_CHARACTERS = 22;

/**
 * Returns what is stored about a user or a client, such as a password hash, or `undefined`. A changed entry signs out the
 * browsers that signed in with it. It appears in the store as a hash only.
 */
export type StoredEntry = (kind: Identity["kind"], name: string) => string | undefined;

/** With what a browser signs in. */
export interface SignIn {
  readonly parent: Parent;
  /** What the browser may do at most. */
  readonly scope: Scope;
  /** The id of the link, if it signs in with one. */
  readonly linkId?: string;
  /** The id of the key that the browser had before. */
  readonly formerId?: string | undefined;
}

/** Returns the parent of the keys of an identity's browsers: its own parent if it is a browser. */
export function getParent({ kind, name, keyId, parent }: Identity, storedEntry: StoredEntry): Parent {
  if (parent !== undefined) return parent;
  if (keyId !== undefined) return { kind: "key", id: keyId };
  return { kind, name, entryHash: hashEntry(storedEntry(kind, name)) };
}

/** Returns whether a user or a client is unchanged since a key was made with it. Stores delete the keys of a deleted key. */
export const isCurrent = (parent: Parent, storedEntry: StoredEntry): boolean =>
  parent.kind === "key" || hashEntry(storedEntry(parent.kind, parent.name)) === parent.entryHash;

const hashEntry = (entry: string | undefined): string =>
  entry === undefined ? "" : hash("sha256", entry, "base64url");

/** Returns the name of the user or of the client to which the key of a browser belongs. */
export const getOwner = (parent: Parent, all: readonly Key[]): string =>
  parent.kind === "key" ? (all.find(({ id }) => id === parent.id)?.name ?? "") : parent.name;

export const getKind = ({ kind }: Parent): Identity["kind"] => (kind === "user" ? "user" : "client");

/** Returns whether nothing is stored about a user or a client, so that a change cannot end its browsers. */
export const isUnchecked = (parent: Parent): boolean => parent.kind !== "key" && parent.entryHash === "";

/** Returns the valid key with an id. */
const findValid = (all: readonly Key[], wanted: string, now: number): Key | undefined =>
  all.find((key) => key.id === wanted && !isExpired(key, now));

/**
 * Makes the key of a browser, and deletes the link and its former key in the same transaction, so that a failure leaves both
 * valid. Returns `undefined` if the parent or the link is no longer valid.
 * @param browser follows the owner in its name, such as "ada · Firefox on Android"; a number follows if another browser of
 *   the parent has that name
 */
export async function createSession(
  keys: KeyStore,
  { parent, scope, linkId, formerId }: SignIn,
  browser: string,
  now: number,
): Promise<(MintedKey & { readonly owner: string }) | undefined> {
  // A use renews only keys with a lifetime.
  const life = isUnchecked(parent)
    ? { expiresAt: now + UNCHECKED_LIFETIME_MS }
    : { expiresAt: now + SESSION_LIFETIME_MS, lifetime: SESSION_LIFETIME_MS };
  for (;;) {
    const all = await keys.list();
    const needed = [linkId, parent.kind === "key" ? parent.id : undefined];
    if (needed.some((id) => id !== undefined && findValid(all, id, now) === undefined)) return undefined;
    const names = new Set(
      all.flatMap((key) => (isDeviceOf(key, parent) && key.id !== formerId ? key.name : [])),
    );
    const owner = getOwner(parent, all);
    const first = deviceName(owner, browser);
    let name = first;
    for (let number = 2; names.has(name); number++) name = `${first} ${number}`;
    const minted = mintKey(mintToken(), { name, scope, kind: "device", parent, createdAt: now, ...life });
    if (await keys.insert(minted.stored, { link: linkId, former: formerId })) return { ...minted, owner };
    // Another request has used the link or taken the name, or the parent was revoked.
  }
}

/**
 * Renames a key, and returns it with its new name. The name of a browser still begins with its owner; only the rest changes.
 * Throws `validation_failed`, or `key_exists` if another key, or another browser of the owner, has the name.
 * @param all all keys of the store
 */
export async function renameKey(keys: KeyStore, key: Key, name: unknown, all: readonly Key[]): Promise<Key> {
  const { id, parent } = key;
  const isDevice = parent !== undefined;
  const renamed = isDevice
    ? deviceName(getOwner(parent, all), parseKeyName(name, MAX_LABEL_LENGTH))
    : parseKeyName(name);
  if (await keys.rename(id, renamed)) return { ...key, name: renamed };
  throw new ServiceError("key_exists", {
    detail: `Another ${isDevice ? "browser of the same owner" : "key"} has this name. Choose a different one.`,
  });
}

export const isDeviceOf = (key: Key, parent: Parent): boolean =>
  key.kind === "device" && isSameParent(key.parent, parent);

/** The code of a link, and when it expires, in milliseconds since 1970. */
export interface Link {
  readonly code: string;
  readonly expiresAt: number;
}

/**
 * Makes a code that signs in one browser, once, within ten minutes. Only its hash is stored. Returns `undefined`, and no
 * link, if the key that makes it was revoked meanwhile.
 * @param parent the key of a client or of a browser that makes the link; for a user with a password, that user
 */
export async function createLink(
  keys: KeyStore,
  parent: Parent,
  scope: Scope,
  now: number,
): Promise<Link | undefined> {
  const code = randomBase62(CODE_CHARACTERS);
  const expiresAt = now + LINK_LIFETIME_MS;
  const name = `link ${randomBase62(CODE_CHARACTERS)}`;
  const { stored } = mintKey(code, { name, scope, kind: "link", parent, createdAt: now, expiresAt });
  return (await keys.insert(stored)) ? { code, expiresAt } : undefined;
}

/** Returns what a code signs in to, and its owner; `undefined` if the code or its parent is no longer valid. */
export async function findLink(keys: KeyStore, code: string, storedEntry: StoredEntry, now: number) {
  const link = await findByToken(keys, code);
  if (link?.kind !== "link" || link.parent === undefined || isExpired(link, now)) return undefined;
  const all = await keys.list();
  const maker = link.parent.kind === "key" ? findValid(all, link.parent.id, now) : undefined;
  // The browser that uses the link of another browser has the same parent.
  const parent = maker?.parent ?? link.parent;
  if (!isCurrent(parent, storedEntry)) return undefined;
  const owner = { kind: getKind(parent), name: getOwner(parent, all) };
  return { linkId: link.id, parent, scope: link.scope, owner };
}
