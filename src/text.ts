/**
 * Returns UTF-8 as text, without a byte order mark. Throws an Error with the remedy for another encoding. UTF-16 without a
 * byte order mark would be valid UTF-8, but has NUL characters.
 */
export function decodeUtf8(bytes: Uint8Array): string {
  let text: string;
  try {
    text = new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch (cause) {
    throw new Error("it is not UTF-8: convert it to UTF-8", { cause });
  }
  if (text.includes("\0")) throw new Error("it has NUL characters, as UTF-16 does: convert it to UTF-8");
  return text;
}

/** Whether a text has the character that the runtime puts in place of bytes that are not UTF-8. */
export const hasReplacement = (text: string): boolean => text.includes("\uFFFD");

/** What ends a line for Unicode, and for editors that keep such characters. */
export const LINE_BREAK = /\r\n|[\n\v\f\r\x85\u2028\u2029]/;
