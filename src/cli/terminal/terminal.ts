import { styleText } from "node:util";

const FALLBACK_WIDTH = 80;

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

const graphemes = new Intl.Segmenter(undefined, { granularity: "grapheme" });

/** Returns text of at most this many columns, with an ellipsis if it was cut. */
export function truncate(text: string, columns: number): string {
  // Bun.sliceAnsi with an ellipsis returns too many columns for wide characters.
  if (Bun.stringWidth(text) <= columns) return text;
  let kept = "";
  let width = 0;
  for (const { segment } of graphemes.segment(text)) {
    width += Bun.stringWidth(segment);
    if (width > columns - 1) break;
    kept += segment;
  }
  return `${kept}…`;
}

/** Returns the width of a terminal; a pipe or a file has no limit. */
export const getColumns = (output: Pick<NodeJS.WriteStream, "isTTY" | "columns">): number =>
  output.isTTY ? output.columns || FALLBACK_WIDTH : Number.POSITIVE_INFINITY;

/** Returns colored text if the stream is a terminal; NO_COLOR and FORCE_COLOR override that. */
export const paint = (style: "dim" | "green" | "red", text: string, stream: NodeJS.WriteStream): string =>
  styleText(style, text, { stream });
