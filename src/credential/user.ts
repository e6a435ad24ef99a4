import { createHmac, randomBytes, timingSafeEqual } from "node:crypto";
import type { Awaitable } from "../awaitable.ts";
import { CONTROL_CHARACTER } from "./authorization.ts";
import { parseEntries } from "./client.ts";

/**
 * Returns whether the password is the user's. If it throws, the request gets a 503.
 * @param network the network of the client; waiting checks are served in turn by network
 */
export type CheckUser = (user: string, password: string, network?: string) => Awaitable<boolean>;

/** Verifies a password against a stored hash. */
export type VerifyPassword = (password: string, passwordHash: string, network?: string) => Promise<boolean>;

const CACHE_TTL_MS = 60_000;
const MAX_CACHED = 1_000;
const MIN_PASSWORD_CHARACTERS = 8;
const MAX_BCRYPT_BYTES = 72;
/** htpasswd rejects a file with a longer line of name, colon and bcrypt hash. */
const MAX_NAME_BYTES = 193;
/** The character that a decoder puts in place of invalid UTF-8. */
const REPLACEMENT = "\uFFFD";

/** Returns a check of one fixed user and password. It compares keyed hashes of both (HMAC) in constant time. */
export function createFixedUserCheck(
  user: string,
  password: string,
): (user: string, password: string) => boolean {
  const hmac = keyedHmac();
  const [userHmac, passwordHmac] = [hmac(user), hmac(password)];
  return (triedUser, triedPassword) => {
    const userMatches = timingSafeEqual(hmac(triedUser), userHmac);
    const passwordMatches = timingSafeEqual(hmac(triedPassword), passwordHmac);
    return Boolean(Number(userMatches) & Number(passwordMatches));
  };
}

/**
 * Returns a check against password hashes by user name. An unknown user takes as long as a known one. A success is
 * cached for one minute as a keyed hash (HMAC), because browsers send the password with every request.
 * @param hashes returns the current hashes, which may change between calls
 * @param monotonicNow returns the milliseconds of a steady clock
 */
export function createUserCheck(
  hashes: () => ReadonlyMap<string, string>,
  verify: VerifyPassword,
  monotonicNow: () => number,
): CheckUser {
  const hmac = keyedHmac();
  const cache = new Map<string, number>();
  /** Verifications under way. Concurrent requests with the same password share one. */
  const verifying = new Map<string, Promise<boolean>>();

  return async (user, password, network) => {
    const known = hashes().get(user);
    // Any stored hash has the right cost to check an unknown user against.
    const [passwordHash] = known === undefined ? hashes().values() : [known];
    if (passwordHash === undefined || !withinLimits(password, passwordHash)) return false;
    const key = hmac(JSON.stringify([user, password, passwordHash])).toString("latin1");
    // An unknown user is checked against another user's hash, whose success may be cached.
    if (known !== undefined && (cache.get(key) ?? Number.NEGATIVE_INFINITY) > monotonicNow()) return true;
    const matches = await (verifying.get(key) ?? startVerification(key, password, passwordHash, network));
    if (!matches || known === undefined) return false;
    cache.delete(key);
    cache.set(key, monotonicNow() + CACHE_TTL_MS);
    const [oldest] = cache.keys();
    if (cache.size > MAX_CACHED && oldest !== undefined) cache.delete(oldest);
    return true;
  };

  function startVerification(key: string, ...args: Parameters<VerifyPassword>): Promise<boolean> {
    const verified = verify(...args).finally(() => verifying.delete(key));
    verifying.set(key, verified);
    return verified;
  }
}

const BCRYPT = /^\$2[aby]\$(?:0[4-9]|[12]\d|3[01])\$[./A-Za-z0-9]{53}$/;
const ARGON2ID = /^\$argon2id\$v=19\$m=\d+,t=\d+,p=\d+\$[A-Za-z0-9+/]+\$[A-Za-z0-9+/]+$/;

/**
 * Parses a users file as Apache's `htpasswd -B` writes it: one line `user:hash` per user, with bcrypt or argon2id.
 * Skips blank lines and lines that start with `#`. Throws an Error that names the invalid line.
 */
export function parseUsers(text: string): Map<string, string> {
  const users = new Map<string, string>();
  for (const [number, line] of parseEntries(text)) {
    const colon = line.indexOf(":");
    const user = line.slice(0, Math.max(colon, 0));
    const passwordHash = line.slice(colon + 1).trim();
    if (user === "") throw new Error(`line ${number} is not "user:hash"`);
    if (!BCRYPT.test(passwordHash) && !ARGON2ID.test(passwordHash)) {
      throw new Error(`line ${number} (${user}) has no whole hash of bcrypt (htpasswd -B) or argon2id`);
    }
    if (users.has(user)) throw new Error(`line ${number} names ${user} a second time`);
    users.set(user, passwordHash);
  }
  return users;
}

/** Returns the name if a users file and HTTP Basic can represent it. Otherwise throws an Error with the reason. */
export function validateUserName(name: string): string {
  if (name === "") throw new Error("must not be empty");
  if (name.includes(":")) throw new Error("must have no colon (RFC 7617)");
  if (CONTROL_CHARACTER.test(name)) throw new Error("must have no control characters (RFC 7617)");
  if (name.includes(REPLACEMENT)) throw new Error("must be UTF-8");
  if (name.startsWith("#")) throw new Error("must not start with #, which starts a comment");
  if (name.trim() !== name) throw new Error("must not start or end with a blank");
  if (Buffer.byteLength(name) > MAX_NAME_BYTES) {
    throw new Error(`must have at most ${MAX_NAME_BYTES} bytes in UTF-8, so that htpasswd reads it`);
  }
  return name;
}

/** Returns whether the password is shorter than 8 characters, or is the user's name. */
export const isEasyToGuess = (user: string, password: string): boolean =>
  [...password].length < MIN_PASSWORD_CHARACTERS || password.toLowerCase() === user.toLowerCase();

/** Returns the password if it is hard to guess, bcrypt hashes all of it and HTTP Basic can send it. Otherwise throws an Error. */
export function validatePassword(user: string, password: string): string {
  if (isEasyToGuess(user, password))
    throw new Error(`must have at least ${MIN_PASSWORD_CHARACTERS} characters, and not be the user's name`);
  if (CONTROL_CHARACTER.test(password)) {
    throw new Error("must have no control characters, because HTTP Basic cannot send them (RFC 7617)");
  }
  if (password.includes(REPLACEMENT)) throw new Error("must be UTF-8");
  if (Buffer.byteLength(password) > MAX_BCRYPT_BYTES) {
    throw new Error(`must have at most ${MAX_BCRYPT_BYTES} bytes in UTF-8, because bcrypt ignores the rest`);
  }
  return password;
}

/** Returns the text of a users file with a new hash for the user, in the user's line or in a new last line. */
export function setUserEntry(text: string, user: string, passwordHash: string): string {
  const entry = `${user}:${passwordHash}`;
  const lines = splitLines(text);
  const index = lines.findIndex(isEntryOf(user));
  if (index >= 0) return lines.with(index, entry + (/\r?\n$/.exec(lines[index] ?? "")?.[0] ?? "")).join("");
  const lineBreak = /\r?\n/.exec(text)?.[0] ?? "\n";
  return text + (/[^\n]$/.test(text) ? lineBreak : "") + entry + lineBreak;
}

/** Returns the text of a users file without the user; a comment if nothing else remains. */
export function removeUserEntry(text: string, user: string): string {
  const of = isEntryOf(user);
  const rest = splitLines(text)
    .filter((line) => !of(line))
    .join("");
  // A server does not accept an empty file at once, because an editor may be about to write it.
  return rest === "" ? "# One line user:hash per user\n" : rest;
}

/** Splits a text into lines with their line breaks. */
const splitLines = (text: string): string[] => text.split(/(?<=\n)/);

const isEntryOf =
  (user: string) =>
  (line: string): boolean =>
    line.startsWith(`${user}:`);

/** Returns whether bcrypt hashes the whole password: implementations differ beyond 72 bytes. */
function withinLimits(password: string, passwordHash: string): boolean {
  return !passwordHash.startsWith("$2") || Buffer.byteLength(password) <= MAX_BCRYPT_BYTES;
}

function keyedHmac(): (text: string) => Buffer {
  const key = randomBytes(32);
  return (text) => createHmac("sha256", key).update(text).digest();
}
