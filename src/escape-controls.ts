/**
 * Matches control characters, and format characters that reorder or hide text, such as U+202E. U+200C and U+200D
 * are safe: they only join letters and emoji.
 */
const UNSAFE = /[[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}]--[\u200c\u200d]]/gv;

/** Returns untrusted text as one line that is safe to print on a terminal: U+001B becomes `<U+001B>`. */
export function escapeControls(text: string): string {
  return text.replace(UNSAFE, (character) => `<U+${hex(character)}>`);
}

/** Returns JSON with the same value and without characters that are unsafe on a terminal. */
export function escapeControlsJson(json: string): string {
  return json.replace(UNSAFE, (character) =>
    Array.from({ length: character.length }, (_, at) => `\\u${hex(character.charAt(at)).toLowerCase()}`).join(
      "",
    ),
  );
}

const hex = (character: string): string =>
  (character.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, "0");
