import { hash, randomBytes } from "node:crypto";

const PREFIX = "todo_";
const RANDOM_CHARACTERS = 43;
const CHECKSUM_CHARACTERS = 6;
const BASE62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/**
 * Returns a new token: `todo_`, 43 random base62 characters (256 bits) and a CRC-32 in 6 base62 characters. Secret
 * scanners find the prefix. The checksum detects typing errors without a lookup.
 */
export function mintToken(): string {
  const body = PREFIX + randomBase62(RANDOM_CHARACTERS);
  return body + checksum(body);
}

/** Returns whether a token has our prefix but an invalid checksum: a typing error. */
export function hasInvalidChecksum(token: string): boolean {
  // Computes the checksum for every token, so that all guesses take the same time.
  const isWrong = checksum(token.slice(0, -CHECKSUM_CHARACTERS)) !== token.slice(-CHECKSUM_CHARACTERS);
  return token.startsWith(PREFIX) && isWrong;
}

/** Returns whether a text has the form of our tokens, with a valid checksum. */
export function isMintedToken(text: string): boolean {
  const characters = PREFIX.length + RANDOM_CHARACTERS + CHECKSUM_CHARACTERS;
  return text.length === characters && text.startsWith(PREFIX) && !hasInvalidChecksum(text);
}

/** Returns the SHA-256 of a token, 32 bytes. Only this hash is stored; it needs no salt, because tokens are random. */
export function hashToken(token: string): Buffer {
  return hash("sha256", token, "buffer");
}

/** Returns random characters from 0-9, A-Z and a-z; each has 5.95 bits of entropy. */
export function randomBase62(length: number): string {
  let text = "";
  while (text.length < length) {
    for (const byte of randomBytes(length)) {
      // 248 is 4 × 62: larger bytes would make the first characters more frequent.
      if (byte < 248 && text.length < length) text += BASE62.charAt(byte % 62);
    }
  }
  return text;
}

/** The CRC-32 of each byte. Loading node:zlib for its crc32 would take 4 MB. */
const CRC_OF_BYTE = Uint32Array.from({ length: 256 }, (_, byte) => {
  let crc = byte;
  for (let bit = 0; bit < 8; bit++) crc = crc & 1 ? (crc >>> 1) ^ 0xedb88320 : crc >>> 1;
  return crc;
});

function crc32(text: string): number {
  let crc = -1;
  for (const byte of Buffer.from(text)) crc = (crc >>> 8) ^ (CRC_OF_BYTE[(crc ^ byte) & 0xff] ?? 0);
  return ~crc >>> 0;
}

function checksum(body: string): string {
  let rest = crc32(body);
  let text = "";
  while (text.length < CHECKSUM_CHARACTERS) {
    text = BASE62.charAt(rest % 62) + text;
    rest = Math.floor(rest / 62);
  }
  return text;
}
