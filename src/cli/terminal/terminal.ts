import { styleText } from "node:util";

const FALLBACK_WIDTH = 80;

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
