/** In characters (code points), as the service counts them. */
export const MAX_TITLE_LENGTH = 120;

/**
 * A list marker of Markdown, plain text and note apps: a bullet, a dash or `1.`, then a check box. Each may be absent. A sign that
 * begins no title needs no space after it.
 */
const MARKER =
  /^(?:(?:[-*+–—·]|\d+[.)])(?:\s+|$)|[•◦▪‣⁃]\s*)?(?:\[([ xX])\](?:\s+|$)|([☐☑☒✓✔✅])\uFE0F?\s*)?/u;

export interface PastedLine {
  /** The line as it was pasted. */
  readonly source: string;
  readonly title: string;
  readonly done: boolean;
  readonly isTooLong: boolean;
}

/** Returns the to-dos of a text, one for each line. Skips blank lines. */
export function parseLines(text: string): PastedLine[] {
  return text.split(/\r\n|\n|\r/).flatMap((source) => {
    const line = source.trim();
    const [marker = "", check = " ", sign = "☐"] = MARKER.exec(line) ?? [];
    const title = line.slice(marker.length);
    if (title === "") return [];
    return [
      { source, title, done: check !== " " || sign !== "☐", isTooLong: [...title].length > MAX_TITLE_LENGTH },
    ];
  });
}

/** Returns to-dos as a Markdown list, which `parseLines` reads. */
export const toMarkdown = (todos: readonly { readonly title: string; readonly done: boolean }[]): string =>
  todos.map(({ title, done }) => `- [${done ? "x" : " "}] ${title.replace(/[\r\n]+/g, " ")}\n`).join("");
