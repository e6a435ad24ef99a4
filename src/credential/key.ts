import { timingSafeEqual } from "node:crypto";
import type { Awaitable } from "../todo.ts";
import type { LookupClient } from "./client.ts";
import { hashToken, mintToken, randomBase62 } from "./token.ts";

const ID_CHARACTERS = 8;

/** A client's key, without its token. Times are in milliseconds since 1970. */
export interface Key {
  /** Short, random, and no secret: for lists and logs. */
  readonly id: string;
  /** The client's. */
  readonly name: string;
  readonly createdAt: number;
  readonly expiresAt?: number;
  /** To within some minutes. */
  readonly lastUsedAt?: number;
}

/** A key with the SHA-256 of its token, 32 bytes. */
export interface StoredKey extends Key {
  readonly tokenHash: Uint8Array;
}

/** A key and its token, which is shown this once and stored nowhere. */
export interface MintedKey {
  readonly key: Key;
  readonly token: string;
}

/** Keys as a storage engine keeps them. Each call is atomic; "absent" is `undefined`. */
export interface KeyStore {
  /** The key whose token has this hash, be it expired. */
  find(tokenHash: Uint8Array): Awaitable<StoredKey | undefined>;
  /** All of them, expired ones too, by when they were created. */
  list(): Awaitable<readonly Key[]>;
  /** Adds a key; not, and false, when one of its name is valid still at `createdAt`. */
  insert(key: StoredKey): Awaitable<boolean>;
  /** Lets a key expire at `expiresAt`, if it does not sooner, and adds its successor; false if it is absent. */
  replace(id: string, expiresAt: number, successor: StoredKey): Awaitable<boolean>;
  /** Whether there was one to delete. */
  delete(id: string): Awaitable<boolean>;
  /** Notes a use; kept at once or some minutes later. */
  touch(id: string, usedAt: number): void;
}

/** Looks tokens up among the keys of a store. */
export function lookupKey(keys: KeyStore, now: () => number): LookupClient {
  return async (token) => {
    const tokenHash = hashToken(token);
    const key = await keys.find(tokenHash);
    if (key === undefined || !timingSafeEqual(key.tokenHash, tokenHash)) return undefined;
    const usedAt = now();
    if (isExpired(key, usedAt)) return undefined;
    keys.touch(key.id, usedAt);
    return { name: key.name };
  };
}

export const isExpired = ({ expiresAt }: Key, now: number): boolean =>
  expiresAt !== undefined && expiresAt <= now;

/**
 * Makes a key; `undefined` when there is a valid one of that name already.
 * @param lifetime in milliseconds; without it, the key does not expire
 */
export async function createKey(
  keys: KeyStore,
  name: string,
  lifetime: number | undefined,
  now: number,
): Promise<MintedKey | undefined> {
  const minted = mintKey(name, lifetime, now);
  return (await keys.insert(minted.stored)) ? minted : undefined;
}

/**
 * Makes a successor with the same name and lifetime; the key itself is valid for the overlap still. `undefined`
 * when there is no such key.
 * @param overlap in milliseconds
 */
export async function rotateKey(
  keys: KeyStore,
  id: string,
  overlap: number,
  now: number,
): Promise<MintedKey | undefined> {
  const key = (await keys.list()).find((one) => one.id === id);
  if (key === undefined) return undefined;
  const lifetime = key.expiresAt === undefined ? undefined : key.expiresAt - key.createdAt;
  const minted = mintKey(key.name, lifetime, now);
  return (await keys.replace(id, now + overlap, minted.stored)) ? minted : undefined;
}

function mintKey(name: string, lifetime: number | undefined, now: number) {
  const token = mintToken();
  const key: Key = {
    id: randomBase62(ID_CHARACTERS),
    name,
    createdAt: now,
    ...(lifetime !== undefined && { expiresAt: now + lifetime }),
  };
  return { key, token, stored: { ...key, tokenHash: hashToken(token) } };
}
