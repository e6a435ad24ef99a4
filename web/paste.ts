/** In characters (code points), as the service counts them. */
export const MAX_TITLE_LENGTH = 120;

/** A list marker of Markdown and plain text: `-`, `*` or `1.`, then `[ ]` or `[x]`. Each may be absent. */
const MARKER = /^(?:(?:[-*]|\d+\.)(?:\s+|$))?(?:\[([ xX])\](?:\s+|$))?/;

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
    const [marker = "", check = " "] = MARKER.exec(line) ?? [];
    const title = line.slice(marker.length);
    if (title === "") return [];
    return [{ source, title, done: check !== " ", isTooLong: [...title].length > MAX_TITLE_LENGTH }];
  });
}

/** Returns to-dos as a Markdown list, which `parseLines` reads. */
export const toMarkdown = (todos: readonly { readonly title: string; readonly done: boolean }[]): string =>
  todos.map(({ title, done }) => `- [${done ? "x" : " "}] ${title.replace(/[\r\n]+/g, " ")}\n`).join("");
