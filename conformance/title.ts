/** What the specification says about a title (sections 2, 7 and 8), and what it leaves open. */

/** Every trim function of a Unicode-aware language removes these. */
const WHITESPACE = "\\t-\\r \\u00a0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000";
/** Some trim functions also remove these: Java's removes all controls, Go's U+0085, and JavaScript's U+FEFF. */
const SOMETIMES_TRIMMED = "\\0-\\x1f\\x85\\u180e\\u200b\\ufeff";
const BLANK = new RegExp(`^[${WHITESPACE}]*$`);
const MARGINS = new RegExp(
  `^[${WHITESPACE}${SOMETIMES_TRIMMED}]+|[${WHITESPACE}${SOMETIMES_TRIMMED}]+$`,
  "g",
);
const MAX_LENGTH = 120;

const segmenter = new Intl.Segmenter("en", { granularity: "grapheme" });

/** Whether a title violates each rule. Undefined: the specification leaves it open. */
export interface Verdict {
  readonly blank: boolean | undefined;
  readonly long: boolean | undefined;
}

/** A character may be a UTF-16 code unit, a code point or a grapheme; a server may measure the title before or after trimming. */
export function judgeTitle(title: string): Verdict {
  const trimmed = trim(title);
  const blank = BLANK.test(title) ? true : trimmed === "" ? undefined : false;
  if (title.length <= MAX_LENGTH) return { blank, long: false };
  return { blank, long: [...segmenter.segment(trimmed)].length > MAX_LENGTH ? true : undefined };
}

/** Returns whether a server may store this title for that one: the same, or without characters at its ends that it trims. */
export function isStoredFor(stored: string, sent: string): boolean {
  return stored === sent || (sent.includes(stored) && trim(stored) === trim(sent));
}

/** Removes everything at both ends that some trim function removes. */
export const trim = (title: string): string => title.replace(MARGINS, "");
