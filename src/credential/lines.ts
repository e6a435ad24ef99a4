/** The entries of a credentials file, by line number from 1: no blank lines, none that start with `#`. */
export function* entriesOf(text: string): Generator<readonly [number: number, line: string]> {
  for (const [index, line] of text
    .replace(/^\uFEFF/, "")
    .split(/\r?\n/)
    .entries()) {
    if (line.trim() !== "" && !line.startsWith("#")) yield [index + 1, line];
  }
}
