/** Titles: text from all planes of Unicode, lengths around the limit, and blanks of every kind. */
import examples from "./examples.json" with { type: "json" };
import { MARKER } from "./model.ts";
import { Deck, type Random } from "./random.ts";

const { texts, whitespace, lengths, fillers, characters } = examples.titles;

/** Characters that software loses, changes or rejects. */
const CHARACTERS = characters.split(" ").flatMap((range) => {
  const [first = 0, last = first] = range.split("-").map((code) => Number.parseInt(code, 16));
  return Array.from({ length: last - first + 1 }, (_, index) => String.fromCodePoint(first + index));
});

const BLANKS = ["", ...whitespace, " ".repeat(120), " ".repeat(121), "\u2003".repeat(130)];

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
    this.texts = new Deck(texts, random);
    this.blanks = new Deck(BLANKS, random);
    const filled = lengths.flatMap((length) => fillers.map((filler) => this.#filled(length, filler)));
    this.lengths = new Deck(filled, random);
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
    const [before = "", after = ""] = this.#random.shuffle([...whitespace.slice(0, -1), "", ""]);
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
