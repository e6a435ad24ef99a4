import { timingSafeEqual } from "node:crypto";
import { Failure, type FieldError } from "../failure.ts";
import { brokenTextRules, invalid, isObject, member } from "../field.ts";
import type { Awaitable } from "../todo.ts";
import type { LookupClient } from "./client.ts";
import { hashToken, mintToken, randomBase62 } from "./token.ts";

const ID_CHARACTERS = 8;
const ID = /^[0-9A-Za-z]{8}$/;
const MAX_NAME_LENGTH = 100;
const SECOND = 1000;
const DAY = 24 * 60 * 60 * SECOND;
const UNITS = new Map([
  ["s", SECOND],
  ["m", 60 * SECOND],
  ["h", 60 * 60 * SECOND],
  ["d", DAY],
  ["w", 7 * DAY],
]);
const MAX_DAYS = 36_500;

/** How long a key goes on beside its successor unless something else is asked for. */
export const DEFAULT_OVERLAP = "24h";

/** For how long after its end a key is still listed, so that one can see why a client has stopped. */
export const EXPIRED_KEPT_MS = 30 * DAY;

/** A client's key, without its token. Times are in milliseconds since 1970. */
export interface Key {
  /** Short, random, and no secret: for lists and logs. */
  readonly id: string;
  /** The client's. */
  readonly name: string;
  readonly createdAt: number;
  readonly expiresAt?: number;
  /** How long it was made to last; a rotation lets it expire sooner. Without it, it was made to last for ever. */
  readonly lifetime?: number;
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
  /**
   * Adds a key; not, and false, when one of its name is valid still at `createdAt`. Each key added lets go of
   * those that have been expired for EXPIRED_KEPT_MS.
   */
  insert(key: StoredKey): Awaitable<boolean>;
  /**
   * Lets a key, and with it all others of its name, expire at `expiresAt`, unless they do sooner, and adds its
   * successor; false if it is absent.
   */
  replace(id: string, expiresAt: number, successor: StoredKey): Awaitable<boolean>;
  /** Whether there was one to delete. */
  delete(id: string): Awaitable<boolean>;
  /** Notes a use; kept at once or some minutes later. */
  touch(id: string, usedAt: number): void;
}

/** What is asked for in a new key. */
export interface NewKey {
  readonly name: string;
  /** In milliseconds; without it, the key does not expire. */
  readonly lifetime: number | undefined;
}

/** Checks the body of a create: throws `validation_failed` with every broken rule; unknown members are ignored. */
export function parseNewKey(body: unknown): NewKey {
  const errors: FieldError[] = [];
  const name = orBroken(errors, () => parseKeyName(member(body, "name")));
  const lifetime = orBroken(errors, () => parseLifetime(member(body, "expires")));
  if (name === undefined || errors.length > 0) throw new Failure("validation_failed", { errors });
  return { name, lifetime };
}

/** Checks the body of a rotation, as parseNewKey does: gives the overlap in milliseconds. */
export function parseRotation(body: unknown): number {
  if (!isObject(body)) throw invalid("overlap", 'must be a member of an object: {"overlap": "24h"}');
  return parseOverlap(member(body, "overlap"));
}

/** Reads a key's name; throws `validation_failed` with every rule it breaks. */
export function parseKeyName(name: unknown): string {
  if (name === undefined) throw invalid("name", "is required");
  if (typeof name !== "string") throw invalid("name", "must be a string");
  const messages = brokenTextRules(name, MAX_NAME_LENGTH);
  // It goes into a text response and into the lines of lists.
  if (/\p{Cc}/u.test(name)) messages.push("must have no control characters");
  if (messages.length > 0) throw invalid("name", ...messages);
  return name;
}

/** Reads for how long a new key is valid: for ever, if nothing is said. */
export function parseLifetime(expires: unknown): number | undefined {
  if (expires === undefined) return undefined;
  const lifetime = parseDuration("expires", expires);
  if (lifetime > 0) return lifetime;
  throw invalid("expires", "must be longer than 0; leave it out for a key that does not expire");
}

/** Reads for how long a key goes on beside its successor. */
export const parseOverlap = (overlap: unknown = DEFAULT_OVERLAP): number => parseDuration("overlap", overlap);

/** Reads a duration, such as 90d, in milliseconds; throws `validation_failed` for the field. */
export function parseDuration(field: string, duration: unknown): number {
  if (typeof duration !== "string") throw invalid(field, "must be a string");
  if (duration === "0") return 0;
  const [, digits, unit = ""] = /^(\d+)([smhdw])$/.exec(duration) ?? [];
  const milliseconds = Number(digits) * (UNITS.get(unit) ?? Number.NaN);
  if (Number.isNaN(milliseconds)) {
    throw invalid(field, "must be a duration such as 90d, 2w, 24h, 15m, 30s or 0");
  }
  if (milliseconds > MAX_DAYS * DAY) throw invalid(field, `must be at most ${MAX_DAYS}d`);
  return milliseconds;
}

/** What is read; `undefined`, and the rules it breaks among the errors, when it breaks any. */
function orBroken<T>(errors: FieldError[], read: () => T): T | undefined {
  try {
    return read();
  } catch (error) {
    if (!(error instanceof Failure) || error.errors === undefined) throw error;
    errors.push(...error.errors);
    return undefined;
  }
}

/** A time as people and programs read it: in UTC, to the second (RFC 3339). */
export const formatTime = (time: number): string => new Date(time).toISOString().replace(/\.\d+Z$/, "Z");

/** Whether a text can be the id of a key, and so may be shown: what else comes in its place may be a token. */
export const isKeyId = (text: string): boolean => ID.test(text);

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
 * Makes a successor with the same name and lifetime; what keys of that name there are already are valid for the
 * overlap still, unless they expire sooner. `undefined` when there is no such key.
 * @param overlap in milliseconds
 */
export async function rotateKey(
  keys: KeyStore,
  id: string,
  overlap: number,
  now: number,
): Promise<MintedKey | undefined> {
  const all = await keys.list();
  const name = all.find((key) => key.id === id)?.name;
  const newest = all.findLast((key) => key.name === name);
  if (name === undefined || newest === undefined) return undefined;
  const minted = mintKey(name, newest.lifetime, now);
  return (await keys.replace(id, now + overlap, minted.stored)) ? minted : undefined;
}

function mintKey(name: string, lifetime: number | undefined, now: number) {
  const token = mintToken();
  const key: Key = {
    id: randomBase62(ID_CHARACTERS),
    name,
    createdAt: now,
    ...(lifetime !== undefined && { expiresAt: now + lifetime, lifetime }),
  };
  return { key, token, stored: { ...key, tokenHash: hashToken(token) } };
}
