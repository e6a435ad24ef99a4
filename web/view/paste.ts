import { LINE_BREAK } from "../../src/text.ts";

/** In characters (code points), as the service counts them. */
export const MAX_TITLE_LENGTH = 120;

/** A title without such a character would be an empty row. */
export const VISIBLE = /[^\s\p{Cc}\p{Cf}\p{Default_Ignorable_Code_Point}\u2800]/u;

/**
 * A list marker of Markdown, plain text and note apps: a bullet, a dash or `1.`, then a check box. Each may be absent. A sign that
 * begins no title needs no space after it.
 */
const MARKER =
  /^(?:(?:[-*+–—·]|\d+[.)])(?:\p{Bidi_C}*\s[\s\p{Bidi_C}]*|$)|[•◦▪‣⁃][\s\p{Bidi_C}]*)?(?:\[([ xX])\](?:\s+|$)|([☐☑☒✓✔✅])\uFE0F?\s*)?/u;

/** A to-do that the user adds. */
export interface Line {
  readonly title: string;
  readonly done: boolean;
}

export interface PastedLine extends Line {
  /** The line as it was pasted. */
  readonly source: string;
  readonly hasCheckBox: boolean;
  readonly isTooLong: boolean;
}

/** Returns the to-dos of a text, one for each line. Skips lines without a visible character. */
export function parseLines(text: string): PastedLine[] {
  return text.split(LINE_BREAK).flatMap((source) => {
    const line = source.trim();
    // Programs put direction marks before a marker. In other places they belong to the title.
    const bare = line.replace(/^[\s\p{Bidi_C}]+/u, "");
    const [marker = "", check, box = check] = MARKER.exec(bare) ?? [];
    const title = marker === "" ? line : bare.slice(marker.length);
    if (!VISIBLE.test(title)) return [];
    const hasCheckBox = box !== undefined;
    const done = hasCheckBox && !" ☐".includes(box);
    return [{ source, title, done, hasCheckBox, isTooLong: [...title].length > MAX_TITLE_LENGTH }];
  });
}

/** Returns to-dos as a Markdown list, which `parseLines` reads. */
export const toMarkdown = (todos: readonly Line[]): string =>
  todos.map(({ title, done }) => `- [${done ? "x" : " "}] ${title.split(LINE_BREAK).join(" ")}\n`).join("");
