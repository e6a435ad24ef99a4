import { hash, randomBytes } from "node:crypto";
import { crc32 } from "node:zlib";

const PREFIX = "todo_";
const RANDOM_CHARACTERS = 43;
const CHECK_CHARACTERS = 6;
const BASE62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/**
 * A new key: `todo_`, 43 random base62 characters (256 bits), 6 of CRC-32. The prefix lets secret scanners
 * find it; the check tells a typo from a wrong key without a look-up.
 */
export function mintToken(): string {
  const body = PREFIX + randomBase62(RANDOM_CHARACTERS);
  return body + check(body);
}

/** Whether a token has the shape of a key minted here but not its check: a slip of the hand. */
export function isMistyped(token: string): boolean {
  return (
    token.startsWith(PREFIX) && check(token.slice(0, -CHECK_CHARACTERS)) !== token.slice(-CHECK_CHARACTERS)
  );
}

/** SHA-256 of a token, 32 bytes: all that is ever stored of it. Unsalted, for the token has the entropy. */
export function hashToken(token: string): Buffer {
  return hash("sha256", token, "buffer");
}

/** Random characters from 0-9, A-Z and a-z, of 5.95 bits each. */
export function randomBase62(length: number): string {
  let text = "";
  while (text.length < length) {
    for (const byte of randomBytes(length)) {
      // 248 is 4 × 62: bytes above would favour the first characters.
      if (byte < 248 && text.length < length) text += BASE62.charAt(byte % 62);
    }
  }
  return text;
}

function check(body: string): string {
  let rest = crc32(body);
  let text = "";
  while (text.length < CHECK_CHARACTERS) {
    text = BASE62.charAt(rest % 62) + text;
    rest = Math.floor(rest / 62);
  }
  return text;
}
