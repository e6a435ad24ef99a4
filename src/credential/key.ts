import { timingSafeEqual } from "node:crypto";
import { type Awaitable, chain } from "../awaitable.ts";
import { type FieldError, ServiceError } from "../error.ts";
import { isObject, ownProperty, parseDuration, textViolations, validationError } from "../validation.ts";
import { type LookupClient, type Parent, parseScope, type Scope } from "./client.ts";
import { hashToken, isMintedToken, mintToken, randomBase62 } from "./token.ts";

const ID_CHARACTERS = 8;
const ID = /^[0-9A-Za-z]{8}$/;
const MAX_NAME_LENGTH = 100;
/** How long a rotated key stays valid beside its successor, by default. */
export const DEFAULT_OVERLAP = "24h";

/** How long lists show an expired key, in milliseconds: it explains why a client gets 401. */
export const EXPIRED_LISTED_MS = 30 * 24 * 60 * 60 * 1000;
/** A use is recorded only if the recorded one is older than this, because a record costs as much as the lookup. */
const USES_APART_MS = 1000;
/** How many expired keys a store keeps. */
export const MAX_EXPIRED_KEYS = 1000;

/** An API key without its token. Times are in milliseconds since 1970. */
export interface Key {
  /** Eight random characters. The id is not secret; lists and logs show it. */
  readonly id: string;
  /** The name of the client. */
  readonly name: string;
  readonly scope: Scope;
  readonly createdAt: number;
  readonly expiresAt?: number;
  /** The lifetime given at creation, in milliseconds; absent for a key without expiry. A rotation may end the key earlier. */
  readonly lifetime?: number;
  /** The last use, accurate to a few minutes. */
  readonly lastUsedAt?: number;
  /** `device`: a browser has the key. `link`: the key is the code of a link. Absent from the key of a client. */
  readonly kind?: "device" | "link";
  /** What a browser's key or a link was made with. Absent from the key of a client. */
  readonly parent?: Parent;
}

/** An API key with the SHA-256 of its token, 32 bytes. */
export interface StoredKey extends Key {
  readonly tokenHash: Uint8Array;
}

/** A new API key with its token. The token is shown once and never stored. */
export interface MintedKey {
  readonly key: Key;
  readonly token: string;
}

/** The ids of keys that the insertion of another key deletes. */
export interface EndedKeys {
  /** A link, which is then used. The insertion returns false if it is absent. */
  readonly link?: string | undefined;
  /** The former key of a browser, which may be absent. It makes room for the new key before siblings are deleted. */
  readonly former?: string | undefined;
}

/** The API keys of a store. Each call is atomic; an absent key is `undefined`. */
export interface KeyStore {
  /** Returns the key with this token hash, expired or not. */
  find(tokenHash: Uint8Array): Awaitable<StoredKey | undefined>;
  /** Returns all keys, expired ones included, in order of creation. */
  list(): Awaitable<readonly Key[]>;
  /**
   * Adds a key, which expires with its parent at the latest. Returns false and adds nothing if its parent is not valid, or if
   * a sibling (a key of the same kind and parent) with its name still is. What has expired is decided at `createdAt` or by
   * the clock of the store, whichever is earlier. Deletes siblings beyond 20 devices or 5 links, expired ones first and then
   * the oldest, and all expired keys but the last 1,000, as `replace` does.
   */
  insert(key: StoredKey, ended?: EndedKeys): Awaitable<boolean>;
  /**
   * Adds the successor of a key. The key and its siblings of the same name, and all keys made with them, expire at
   * `expiresAt`, unless they expire earlier. Returns false and changes nothing if the key is absent.
   */
  replace(id: string, expiresAt: number, successor: StoredKey): Awaitable<boolean>;
  /** Deletes a key and all keys made with it. Returns whether it existed. */
  delete(id: string): Awaitable<boolean>;
  /** Renames a key. Returns false and changes nothing if it is absent, or if a sibling has the name. */
  rename(id: string, name: string): Awaitable<boolean>;
  /**
   * Records a use. The store may write it a few minutes later. A key with a parent and a lifetime then expires one lifetime
   * later, or with its parent.
   */
  recordUse(id: string, usedAt: number): void;
}

/**
 * Validates the body of a create request. Throws `validation_failed` with all errors. Ignores unknown properties.
 * The lifetime is in milliseconds, and `undefined` for a key that does not expire.
 */
export function parseNewKey(body: unknown) {
  const errors: FieldError[] = [];
  const name = collectErrors(errors, () => parseKeyName(ownProperty(body, "name")));
  const lifetime = collectErrors(errors, () => parseLifetime(ownProperty(body, "expires")));
  const scope = collectErrors(errors, () => parseScope(ownProperty(body, "scope")));
  if (name === undefined || scope === undefined || errors.length > 0)
    throw new ServiceError("validation_failed", { errors });
  return { name, lifetime, scope };
}

/** Validates the body of a rotation request. Returns the overlap in milliseconds; throws `validation_failed`. */
export function parseRotation(body: unknown): number {
  if (!isObject(body)) throw validationError("overlap", 'must be a member of an object: {"overlap": "24h"}');
  return parseOverlap(ownProperty(body, "overlap"));
}

/** Validates the name of a key. Throws `validation_failed` with every violated rule. */
export function parseKeyName(name: unknown, maxLength = MAX_NAME_LENGTH): string {
  if (name === undefined) throw validationError("name", "is required");
  if (typeof name !== "string") throw validationError("name", "must be a string");
  const messages = textViolations(name, maxLength);
  // The name is part of text responses and of lists with one line per key.
  if (/\p{Cc}/u.test(name)) messages.push("must have no control characters");
  // Lists and logs show the name.
  if (isMintedToken(name)) messages.push("must not be a token");
  if (messages.length > 0) throw validationError("name", ...messages);
  return name;
}

/** Parses the lifetime of a new key, in milliseconds. Returns `undefined` (no expiry) for `undefined`. */
export function parseLifetime(expires: unknown): number | undefined {
  if (expires === undefined) return undefined;
  const lifetime = parseDuration("expires", expires);
  if (lifetime > 0) return lifetime;
  throw validationError("expires", "must be longer than 0; leave it out for a key that does not expire");
}

/** Parses how long a rotated key stays valid beside its successor, in milliseconds. */
export const parseOverlap = (overlap: unknown = DEFAULT_OVERLAP): number => parseDuration("overlap", overlap);

/** Returns what `read` returns. If it throws `validation_failed`, adds the errors to `errors` and returns `undefined`. */
function collectErrors<T>(errors: FieldError[], read: () => T): T | undefined {
  try {
    return read();
  } catch (error) {
    if (!(error instanceof ServiceError) || error.errors === undefined) throw error;
    errors.push(...error.errors);
    return undefined;
  }
}

/** Returns a time in UTC, to the second (RFC 3339). */
export const formatTime = (time: number): string => new Date(time).toISOString().replace(/\.\d+Z$/, "Z");

/** Returns whether a text has the form of a key id. Any other text may be a token and must not be shown. */
export const isKeyId = (text: string): boolean => ID.test(text);

/** Returns the key of a token, expired or not. It is synchronous if `keys.find` is. */
export function findByToken(keys: KeyStore, token: string): Awaitable<StoredKey | undefined> {
  const tokenHash = hashToken(token);
  return chain(keys.find(tokenHash), (key) =>
    key !== undefined && timingSafeEqual(key.tokenHash, tokenHash) ? key : undefined,
  );
}

/**
 * Returns a lookup of tokens among the API keys of a store. It is synchronous if `keys.find` is.
 * @param isCurrent returns whether the parent of a browser's key is still valid; by default only the parents that are keys
 */
export function createKeyLookup(
  keys: KeyStore,
  now: () => number,
  isCurrent = (parent: Parent): boolean => parent.kind === "key",
): LookupClient {
  return (token) =>
    chain(findByToken(keys, token), (key) => {
      if (key === undefined) return undefined;
      const usedAt = now();
      if (isExpired(key, usedAt) || key.kind === "link") return undefined;
      const { id: keyId, name, scope, parent, lastUsedAt = Number.NEGATIVE_INFINITY } = key;
      if (parent !== undefined && !isCurrent(parent)) return undefined;
      if (usedAt - lastUsedAt >= USES_APART_MS) keys.recordUse(keyId, usedAt);
      if (parent === undefined) return { name, keyId, scope };
      return { name, keyId, scope, parent, isRevoked: () => !isCurrent(parent) };
    });
}

/** Returns a text that differs for each parent. */
export const parentText = (parent: Parent): string =>
  parent.kind === "key" ? `key:${parent.id}` : `${parent.kind}:${parent.entryHash}:${parent.name}`;

export const isSameParent = (one?: Parent, other?: Parent): boolean =>
  (one && parentText(one)) === (other && parentText(other));

export const isExpired = ({ expiresAt }: Key, now: number): boolean =>
  expiresAt !== undefined && expiresAt <= now;

/** Returns whether lists show a key. */
export const isListed = (key: Key, now: number): boolean =>
  !isExpired(key, now - EXPIRED_LISTED_MS) && key.kind !== "link";

/**
 * Creates an API key. Returns `undefined` if a valid key with that name exists.
 * @param lifetime in milliseconds; `undefined` for a key that does not expire
 */
export async function createKey(
  keys: KeyStore,
  name: string,
  lifetime: number | undefined,
  now: number,
  scope: Scope = "write",
): Promise<MintedKey | undefined> {
  const minted = mintKey(mintToken(), { name, scope, createdAt: now, ...expiring(lifetime, now) });
  return (await keys.insert(minted.stored)) ? minted : undefined;
}

/**
 * Creates a successor with the same name, and with the lifetime and scope of the newest key of that name. The existing keys of that
 * name stay valid for the overlap, unless they expire earlier. Returns `undefined` if the key does not exist or is a browser's.
 * @param overlap in milliseconds
 */
export async function rotateKey(
  keys: KeyStore,
  id: string,
  overlap: number,
  now: number,
): Promise<MintedKey | undefined> {
  const all = await keys.list();
  const name = all.find((key) => key.id === id && key.kind === undefined)?.name;
  const newest = all.findLast((key) => key.name === name && key.kind === undefined);
  if (name === undefined || newest === undefined) return undefined;
  const { scope, lifetime } = newest;
  const minted = mintKey(mintToken(), { name, scope, createdAt: now, ...expiring(lifetime, now) });
  return (await keys.replace(id, now + overlap, minted.stored)) ? minted : undefined;
}

const expiring = (lifetime: number | undefined, now: number) =>
  lifetime === undefined ? {} : { expiresAt: now + lifetime, lifetime };

/** Makes a key with a random id, not stored yet. */
export function mintKey(token: string, fields: Omit<Key, "id">): MintedKey & { readonly stored: StoredKey } {
  const key: Key = { id: randomBase62(ID_CHARACTERS), ...fields };
  return { key, token, stored: { ...key, tokenHash: hashToken(token) } };
}
