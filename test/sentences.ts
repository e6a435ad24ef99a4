/** Measures the sentences of the project's texts. `npm run check` runs it and fails if an enforced file has a long sentence. */
import { globSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

/** The maximum number of words in a sentence of an enforced file. */
const MAX_WORDS = 35;
/** Shorter texts, such as the cells of a table, are not sentences. */
const MIN_WORDS = 4;

/** Files whose long sentences make the check fail. */
const ENFORCED: readonly string[] = [
  "README.md",
  "docs/README.md",
  "docs/{tutorials,how-to,reference,explanation,decisions}/*.md",
  "SECURITY.md",
  "CHANGELOG.md",
  "ARCHITECTURE.md",
  "CONTRIBUTING.md",
  "bench/README.md",
  "bench/notes.md",
  "conformance/README.md",
];

const ROOT = fileURLToPath(new URL("..", import.meta.url));
const BLOCK_END = "\0";
const segmenter = new Intl.Segmenter("en", { granularity: "sentence" });

/** Returns the sentences of a Markdown text, without headings and code blocks. An inline code is the word `Code`. */
export function sentencesOf(markdown: string): string[] {
  const block = (text: string): string => `${BLOCK_END}${text}${BLOCK_END}`;
  const nothing = (): string => "";
  const text = Bun.markdown.render(markdown, {
    heading: nothing,
    code: nothing,
    html: nothing,
    image: nothing,
    th: nothing,
    // A capital, because a sentence that begins with a small letter would be added to the one before it.
    codespan: () => "Code",
    paragraph: block,
    listItem: block,
    td: block,
  });
  return text
    .split(BLOCK_END)
    .map((part) => part.replace(/\s+/g, " ").trim())
    .flatMap((part) => [...segmenter.segment(part)].map(({ segment }) => segment.trim()))
    .filter((sentence) => wordsOf(sentence).length >= MIN_WORDS);
}

const wordsOf = (sentence: string): string[] =>
  sentence.split(" ").filter((word) => /[\p{L}\p{N}]/u.test(word));

export const countWords = (sentence: string): number => wordsOf(sentence).length;

/** The lengths are numbers of words. */
export interface Measurement {
  readonly sentences: number;
  readonly median: number;
  readonly longest: number;
  /** The Automated Readability Index: about the number of school years that a reader needs. */
  readonly grade: number;
}

/** Measures sentences. At least one is required. */
export function measure(sentences: readonly string[]): Measurement {
  const lengths = sentences.map(countWords).toSorted((one, other) => one - other);
  const words = lengths.reduce((sum, length) => sum + length, 0);
  const characters = sentences.reduce(
    (sum, sentence) => sum + (sentence.match(/[\p{L}\p{N}]/gu)?.length ?? 0),
    0,
  );
  return {
    sentences: sentences.length,
    median: lengths[Math.floor(lengths.length / 2)] ?? 0,
    longest: lengths.at(-1) ?? 0,
    grade: 4.71 * (characters / words) + 0.5 * (words / sentences.length) - 21.43,
  };
}

const filesOf = (patterns: readonly string[]): string[] =>
  [...new Set(patterns.flatMap((pattern) => globSync(pattern, { cwd: ROOT })))].toSorted();

function main(): void {
  const all: string[] = [];
  const tooLong: string[] = [];
  const row = (name: string, { sentences, median, longest, grade }: Measurement): void => {
    const cells = [String(sentences), String(median), String(longest), grade.toFixed(1)];
    process.stdout.write(`${name.padEnd(48)}${cells.map((cell) => cell.padStart(11)).join("")}\n`);
  };
  process.stdout.write(`${"words per sentence".padEnd(48)}  sentences     median    longest      grade\n`);
  for (const file of filesOf(ENFORCED)) {
    const sentences = sentencesOf(readFileSync(`${ROOT}/${file}`, "utf8"));
    if (sentences.length === 0) continue;
    all.push(...sentences);
    row(file, measure(sentences));
    for (const sentence of sentences)
      if (countWords(sentence) > MAX_WORDS)
        tooLong.push(`${file}: ${countWords(sentence)} words, at most ${MAX_WORDS}: ${sentence}`);
  }
  row("all files", measure(all));
  for (const line of tooLong) process.stdout.write(`${line}\n`);
  if (tooLong.length > 0) process.exitCode = 1;
}

if (import.meta.main) main();
