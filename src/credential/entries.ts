/** Yields each entry of a credentials file with its line number, from 1. Skips blank lines and lines that start with `#`. */
export function* parseEntries(text: string): Generator<readonly [number: number, line: string]> {
  for (const [index, line] of text
    .replace(/^\uFEFF/, "")
    .split(/\r?\n/)
    .entries()) {
    if (line.trim() !== "" && !line.startsWith("#")) yield [index + 1, line];
  }
}
