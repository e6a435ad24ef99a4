/** Titles: text from all planes of Unicode, lengths around the limit, and blanks of every kind. */
import { MARKER } from "./model.ts";
import { Deck, type Random } from "./random.ts";

const range = (first: number, last: number): number[] =>
  Array.from({ length: last - first + 1 }, (_, index) => first + index);

/** Characters that software loses, changes or rejects. */
const CHARACTERS = [
  ...range(0x00, 0x2f), // controls and punctuation
  ...[...range(0x3a, 0x40), ...range(0x5b, 0x60), ...range(0x7b, 0xa0)],
  ...[
    0xad, 0xb2, 0xbd, 0xc5, 0xdf, 0xe9, 0xff, 0x130, 0x131, 0x1c5, 0x2b0, 0x301, 0x327, 0x345, 0x3a3, 0x3c2,
  ],
  ...[0x430, 0x5d0, 0x600, 0x61c, 0x627, 0x6dd, 0x70f, 0x8e2, 0x958, 0xe01, 0x1100, 0x1161, 0x1680, 0x180e],
  ...[0x1e9e, ...range(0x2000, 0x2014), ...range(0x2018, 0x201d), 0x2026, ...range(0x2028, 0x202f), 0x205f],
  ...[
    ...range(0x2060, 0x206f),
    0x2126,
    0x212b,
    0x2460,
    0x2764,
    0x3000,
    0x3042,
    0x3099,
    0x65e5,
    0xac00,
    0xd7ff,
  ],
  ...[0xe000, 0xf8ff, 0xf900, 0xfb01, 0xfdd0, 0xfe00, 0xfe0f, 0xfeff, 0xff21, ...range(0xfff9, 0xffff)],
  ...[0x10000, 0x110bd, 0x1d11e, 0x1d173, 0x1f1e9, 0x1f3fd, 0x1f468, 0x1f600, 0x1fffe, 0x20000, 0x2f800],
  ...[0x30000, 0x40000, 0x80000, 0xe0001, 0xe0041, 0xe0100, 0xf0000, 0x10fffd, 0x10ffff],
].map((code) => String.fromCodePoint(code));

/** Texts that software takes for something else than text. */
const TEXTS = [
  ..."null true false undefined NaN 0 007 1e5 -1 0x10 1.0 2024-01-01 __proto__ constructor toString".split(
    " ",
  ),
  ...[
    "<b>markup</b>",
    "&amp;",
    "&#38; &lt;",
    "%20",
    "%",
    "%s %d",
    "a+b",
    "{{x}}",
    "#{x}",
    "$(x)",
    "<!--",
    "]]>",
  ],
  ...[
    "../..",
    "\\u0041",
    "\\n",
    "\\",
    '"',
    '\\"',
    "'",
    "''",
    "`",
    "' OR '1'='1",
    "--",
    "/*",
    "#",
    "@x",
    "=1+1",
  ],
  ...[
    "two  blanks",
    "a\ttab",
    "a\nnewline",
    "a\r\nbreak",
    "e\u0301",
    "\u00e9",
    "\u212b",
    "ﬁ",
    "\u00df \u1e9e",
    "İI",
  ],
  ...[
    "日本語",
    "العربية",
    "👩‍👩‍👧",
    "🇩🇪",
    "❤️",
    "UPPER lower",
    "a,b;c",
    "[]",
    "{}",
    '{"title":"x"}',
    "~",
    "x:y",
  ],
];

/** Whitespace, of which a title must not consist. */
const WHITESPACE = [
  "\t",
  "\n",
  "\v",
  "\f",
  "\r",
  " ",
  "\u00a0",
  "\u1680",
  ..."\u2000\u2001\u2002\u2003\u2004\u2005",
]
  .concat([..."\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"])
  .concat([" \t\r\n ", "\u3000 ", "   "]);

const LENGTHS = [
  1, 2, 63, 64, 65, 99, 100, 101, 119, 120, 121, 122, 127, 128, 129, 200, 254, 255, 256, 257, 500, 1000, 5000,
];
const FILLERS = ["x", "é", "あ", "😀", "a b"];

/** Deals titles. Most contain the marker of the run, so that no other client has them. */
export class Titles {
  readonly #random: Random;
  readonly #marker: string;
  #count = 0;
  readonly characters: Deck<string>;
  readonly texts: Deck<string>;
  readonly blanks: Deck<string>;
  readonly lengths: Deck<string>;

  constructor(random: Random) {
    this.#random = random;
    this.#marker = `${MARKER}${random.below(1_000_000)}`;
    this.characters = new Deck(CHARACTERS, random);
    this.texts = new Deck(TEXTS, random);
    this.blanks = new Deck(
      ["", ...WHITESPACE, " ".repeat(120), " ".repeat(121), "\u2003".repeat(130)],
      random,
    );
    const lengths = LENGTHS.flatMap((length) => FILLERS.map((filler) => this.#filled(length, filler)));
    this.lengths = new Deck(lengths, random);
  }

  /** Returns a title that no other to-do has. */
  plain(): string {
    this.#count += 1;
    return `${this.#marker} ${this.#count}`;
  }

  /** Returns a title with special characters between letters, or one that is a special text. */
  special(): string {
    const choice = this.#random.below(8);
    if (choice === 0) return this.texts.deal(1).join("");
    if (choice === 1) return `${this.plain()} ${this.texts.deal(1)}`;
    if (choice === 2) return `a${Array.from({ length: 20 }, () => this.#anyCharacter()).join("")}z`;
    return `a${this.characters.deal(6).join("b")}z`;
  }

  /** Returns a valid title with whitespace at its ends. */
  padded(): string {
    const [before = "", after = ""] = this.#random.shuffle([...WHITESPACE.slice(0, -1), "", ""]);
    return before + this.plain() + after;
  }

  any(): string {
    const choice = this.#random.below(10);
    if (choice < 4) return this.plain();
    if (choice < 7) return this.special();
    if (choice === 7) return this.padded();
    return (choice === 8 ? this.lengths : this.blanks).deal(1).join("");
  }

  /** Returns a code point of any plane, without surrogates. */
  #anyCharacter(): string {
    const code = this.#random.below(17) * 0x10000 + this.#random.below(0x10000);
    return code >= 0xd800 && code < 0xe000 ? "x" : String.fromCodePoint(code);
  }

  #filled(length: number, filler: string): string {
    if (length < 20 || filler === "x")
      return [...filler.repeat(length)].slice(0, length).join("").replace(/ $/, "b");
    const start = `${this.#marker}  `;
    return `${start}${[...filler.repeat(length)].slice(0, length - start.length - 1).join("")}z`;
  }
}
