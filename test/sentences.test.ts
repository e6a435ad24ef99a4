import { expect, test } from "bun:test";
import { countWords, measure, sentencesOf } from "./sentences.ts";

test("sentences are found in paragraphs, lists and tables", () => {
  const markdown = `# A heading has no sentences at all

One sentence that goes
over two lines. Another sentence with four words.

- An item of a list.
  - A nested item of it.
- A loose item comes last.

| head of a long column |
| --- |
| A cell of the table. |
| short |
`;
  expect(sentencesOf(markdown)).toEqual([
    "One sentence that goes over two lines.",
    "Another sentence with four words.",
    "An item of a list.",
    "A nested item of it.",
    "A loose item comes last.",
    "A cell of the table.",
  ]);
});

test("code is one word or not counted", () => {
  const markdown = `Run \`npm start -- --port 8080\` in a terminal. \`todo serve\` does the same.

\`\`\`sh
this is not a sentence of the page
\`\`\`
`;
  expect(sentencesOf(markdown)).toEqual(["Run Code in a terminal.", "Code does the same."]);
});

test("a link counts by its text, and an image does not count", () => {
  const markdown = "Read [the whole page](https://example.com/a/b) first. ![a picture of a cat](cat.png)\n";
  expect(sentencesOf(markdown)).toEqual(["Read the whole page first."]);
});

test("numbers and versions do not end a sentence", () => {
  expect(sentencesOf("Version 1.4.5 of todos.db needs 0.5 s and 1,000 files.\n")).toHaveLength(1);
});

test("words are separated by blanks, and signs are not words", () => {
  expect(countWords("A re-read – of 1,000 files = slow.")).toBe(6);
});

test("the measurement has median, maximum and grade", () => {
  const sentences = ["One two six ten.", "One two six ten one two.", "One two six ten one."];
  const { grade, ...lengths } = measure(sentences);
  expect(lengths).toEqual({ sentences: 3, median: 5, longest: 6 });
  // 15 words with 45 letters in 3 sentences.
  expect(grade).toBeCloseTo(4.71 * 3 + 0.5 * 5 - 21.43, 10);
});
