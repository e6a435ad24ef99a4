import { createHmac, randomBytes, timingSafeEqual } from "node:crypto";
import type { Awaitable } from "../todo.ts";
import { entriesOf } from "./lines.ts";

/** The name that passed the Basic check. */
export interface BasicUser {
  readonly name: string;
}

/**
 * Whether a password is the user's; a throw means that it could not be checked.
 * @param network whence it comes: where checks have to wait, no network's keep those of others waiting
 */
export type CheckUser = (user: string, password: string, network?: string) => Awaitable<boolean>;

/** Checks a password from a network against a stored hash. */
export type VerifyPassword = (password: string, passwordHash: string, network?: string) => Promise<boolean>;

const REMEMBERED_MS = 60_000;
const REMEMBERED_MOST = 1_000;
const BCRYPT_MOST_BYTES = 72;
/** In a longer line of name, colon and bcrypt, htpasswd no longer takes the file for one of its own. */
const NAME_MOST_BYTES = 193;
// biome-ignore lint/suspicious/noControlCharactersInRegex: they are what RFC 7617 forbids
const CONTROL = /[\x00-\x1f\x7f]/;
/** What a decoder leaves of bytes that are no UTF-8. */
const REPLACEMENT = "\uFFFD";

/** Checks against one fixed pair: digests of both halves, under a key of this process, no short circuit. */
export function checkFixedPair(user: string, password: string): (user: string, password: string) => boolean {
  const digest = keyedDigest();
  const [userDigest, passwordDigest] = [digest(user), digest(password)];
  return (triedUser, triedPassword) => {
    const userMatches = timingSafeEqual(digest(triedUser), userDigest);
    const passwordMatches = timingSafeEqual(digest(triedPassword), passwordDigest);
    return Boolean(Number(userMatches) & Number(passwordMatches));
  };
}

/**
 * Checks against password hashes by user name. An unknown user costs as much as a known one. A success is
 * remembered for a minute, as a keyed digest, so that a browser's every request does not pay for a hash.
 * @param hashes the hashes as they are now: they may change between calls
 * @param now milliseconds of a steady clock
 */
export function checkAmong(
  hashes: () => ReadonlyMap<string, string>,
  verify: VerifyPassword,
  now: () => number,
): CheckUser {
  const digest = keyedDigest();
  const remembered = new Map<string, number>();
  /** A page sends the same password with many requests at once: it is verified once. */
  const verifying = new Map<string, Promise<boolean>>();

  return async (user, password, network) => {
    const known = hashes().get(user);
    const passwordHash = known ?? dummyAmong(hashes());
    if (passwordHash === undefined || !withinLimits(password, passwordHash)) return false;
    const key = digest(JSON.stringify([user, password, passwordHash])).toString("latin1");
    // An unknown user is checked against somebody else's hash, which may be remembered.
    if (known !== undefined && (remembered.get(key) ?? Number.NEGATIVE_INFINITY) > now()) return true;
    const matches = await (verifying.get(key) ?? verifyOnce(key, password, passwordHash, network));
    if (!matches || known === undefined) return false;
    remembered.delete(key);
    remembered.set(key, now() + REMEMBERED_MS);
    const [oldest] = remembered.keys();
    if (remembered.size > REMEMBERED_MOST && oldest !== undefined) remembered.delete(oldest);
    return true;
  };

  function verifyOnce(key: string, ...asked: Parameters<VerifyPassword>): Promise<boolean> {
    const verified = verify(...asked).finally(() => verifying.delete(key));
    verifying.set(key, verified);
    return verified;
  }
}

const BCRYPT = /^\$2[aby]\$(?:0[4-9]|[12]\d|3[01])\$[./A-Za-z0-9]{53}$/;
const ARGON2ID = /^\$argon2id\$v=19\$m=\d+,t=\d+,p=\d+\$[A-Za-z0-9+/]+\$[A-Za-z0-9+/]+$/;
const REFUSED_FORMATS: readonly (readonly [RegExp, string])[] = [
  [/^\$apr1\$/, "Apache's MD5 ($apr1$)"],
  [/^\$1\$/, "MD5-crypt ($1$)"],
  [/^\{SHA\}/i, "unsalted SHA-1 ({SHA})"],
  [/^\{SSHA\}/i, "salted SHA-1 ({SSHA})"],
  [/^\$5\$/, "SHA-256-crypt ($5$)"],
  [/^\$6\$/, "SHA-512-crypt ($6$)"],
  [/^\$argon2[di]\$/, "argon2 other than argon2id"],
  [/^\$2/, "a bcrypt hash that is not whole"],
  [/^\$argon2id\$/, "an argon2id hash that is not whole"],
  [/^[./A-Za-z0-9]{13}$/, "DES-crypt"],
];

/**
 * Reads a users file as Apache's `htpasswd -B` writes it: a line `user:hash` each, with bcrypt or argon2id;
 * blank lines and lines that start with `#` are skipped. Throws an Error that names the line, and the format
 * if it is a weak one.
 */
export function parseUsers(text: string): Map<string, string> {
  const users = new Map<string, string>();
  for (const [number, line] of entriesOf(text)) {
    const colon = line.indexOf(":");
    const user = line.slice(0, Math.max(colon, 0));
    const passwordHash = line.slice(colon + 1).trim();
    if (user === "") throw new Error(`line ${number} is not "user:hash"`);
    if (!BCRYPT.test(passwordHash) && !ARGON2ID.test(passwordHash)) {
      const format = REFUSED_FORMATS.find(([pattern]) => pattern.test(passwordHash))?.[1] ?? "no known hash";
      throw new Error(`line ${number} (${user}) has ${format}: use bcrypt (htpasswd -B) or argon2id`);
    }
    if (users.has(user)) throw new Error(`line ${number} names ${user} a second time`);
    users.set(user, passwordHash);
  }
  return users;
}

/** A name that a users file can hold and Basic can send; an Error says what is wrong with another. */
export function checkedUserName(name: string): string {
  if (name === "") throw new Error("must not be empty");
  if (name.includes(":")) throw new Error("must have no colon (RFC 7617)");
  if (CONTROL.test(name)) throw new Error("must have no control characters (RFC 7617)");
  if (name.includes(REPLACEMENT)) throw new Error("must be UTF-8");
  if (name.startsWith("#")) throw new Error("must not start with #, as comments do");
  if (name.trim() !== name) throw new Error("must not start or end with a blank");
  if (Buffer.byteLength(name) > NAME_MOST_BYTES) {
    throw new Error(`must have at most ${NAME_MOST_BYTES} bytes in UTF-8, so that htpasswd reads it`);
  }
  return name;
}

/** A password that bcrypt takes whole and Basic can send; an Error says what is wrong with another. */
export function checkedPassword(password: string): string {
  if (password === "") throw new Error("must not be empty");
  if (CONTROL.test(password)) {
    throw new Error("must have no control characters: it could not be sent (RFC 7617)");
  }
  if (password.includes(REPLACEMENT)) throw new Error("must be UTF-8");
  if (Buffer.byteLength(password) > BCRYPT_MOST_BYTES) {
    throw new Error(`must have at most ${BCRYPT_MOST_BYTES} bytes in UTF-8: bcrypt takes no more`);
  }
  return password;
}

/** The text of a users file with a user's hash: in the line the user has, or in a new one at the end. */
export function withUser(text: string, user: string, passwordHash: string): string {
  const entry = `${user}:${passwordHash}`;
  const lines = linesOf(text);
  const index = lines.findIndex(isOf(user));
  if (index >= 0) return lines.with(index, entry + (/\r?\n$/.exec(lines[index] ?? "")?.[0] ?? "")).join("");
  const lineBreak = /\r?\n/.exec(text)?.[0] ?? "\n";
  return text + (/[^\n]$/.test(text) ? lineBreak : "") + entry + lineBreak;
}

/** The text of a users file without a user; never an empty one. */
export function withoutUser(text: string, user: string): string {
  const of = isOf(user);
  const rest = linesOf(text)
    .filter((line) => !of(line))
    .join("");
  // Who reads the file again ignores an empty one: an editor may be about to write it.
  return /^\uFEFF?$/.test(rest) ? `${rest}# a line user:hash for each user\n` : rest;
}

/** The lines with their breaks; a mark of the byte order is one of its own. */
const linesOf = (text: string): string[] => text.split(/(?<=^\uFEFF|\n)/);

const isOf =
  (user: string) =>
  (line: string): boolean =>
    line.startsWith(`${user}:`);

/** Past 72 bytes, implementations of bcrypt disagree on what counts. */
function withinLimits(password: string, passwordHash: string): boolean {
  return !passwordHash.startsWith("$2") || Buffer.byteLength(password) <= BCRYPT_MOST_BYTES;
}

/** A hash for an unknown user to be checked against, in vain: any real one has the right cost. */
function dummyAmong(hashes: ReadonlyMap<string, string>): string | undefined {
  const [first] = hashes.values();
  return first;
}

function keyedDigest(): (text: string) => Buffer {
  const key = randomBytes(32);
  return (text) => createHmac("sha256", key).update(text).digest();
}
