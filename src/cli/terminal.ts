import type { Environment } from "./config.ts";

const FALLBACK_WIDTH = 80;

/**
 * What a terminal takes for commands, or shows in another order or not at all: control characters, and format
 * characters such as U+202E. Two of them join letters and emoji, and do no more than that.
 */
const HARMFUL = /[[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}]--[\u200c\u200d]]/gv;

/** Text that others wrote, in one line that a terminal shows as it stands: U+001B becomes `<U+001B>`. */
export function harmless(text: string): string {
  return text.replace(HARMFUL, (character) => `<U+${hex(character)}>`);
}

/** JSON with the same value, and no character that is harmful on a terminal. */
export function harmlessJson(json: string): string {
  return json.replace(HARMFUL, (character) =>
    Array.from({ length: character.length }, (_, at) => `\\u${hex(character.charAt(at)).toLowerCase()}`).join(
      "",
    ),
  );
}

const hex = (character: string): string =>
  (character.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, "0");

const graphemes = new Intl.Segmenter(undefined, { granularity: "grapheme" });

/** Text in at most so many columns, with an ellipsis where it is cut. */
export function cut(text: string, columns: number): string {
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

export const columnsOf = (output: NodeJS.WriteStream): number => output.columns || FALLBACK_WIDTH;

type Style = "dim" | "green" | "red";
export type Paint = (style: Style, text: string) => string;

const CODES: Readonly<Record<Style, readonly [on: number, off: number]>> = {
  dim: [2, 22],
  green: [32, 39],
  red: [31, 39],
};

/** Colours text, unless NO_COLOR is set or the output is no terminal; FORCE_COLOR wins over both. */
export function painter(output: NodeJS.WriteStream, env: Environment): Paint {
  return hasColors(output, env)
    ? (style, text) => `\x1b[${CODES[style][0]}m${text}\x1b[${CODES[style][1]}m`
    : (_style, text) => text;
}

function hasColors(output: NodeJS.WriteStream, { FORCE_COLOR, NO_COLOR, TERM }: Environment): boolean {
  if (FORCE_COLOR) return FORCE_COLOR !== "0";
  return !NO_COLOR && output.isTTY && TERM !== "dumb";
}
