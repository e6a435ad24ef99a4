import { expect, test } from "bun:test";
import fc from "fast-check";
import { hashToken, hasInvalidChecksum, mintToken, randomBase62 } from "./token.ts";

const PREFIX = "todo_";
const BASE62 = [..."0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"];
/** Computed with another CRC-32 implementation, because tokens of all versions must stay valid. */
const MINTED_ELSEWHERE = [
  "todo_00000000000000000000000000000000000000000000Rs1Na",
  "todo_0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefg3heM01",
  "todo_zzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzz2GknCV",
];

const minted = fc.constant(null).map(mintToken);
const place = fc.integer({ min: PREFIX.length, max: PREFIX.length + 43 + 6 - 1 });

const tokens = Array.from({ length: 2000 }, mintToken);

test("mintToken returns the prefix, 43 random characters and 6 characters of checksum, each time others", () => {
  for (const token of tokens) expect(token).toMatch(/^todo_[0-9A-Za-z]{43}[0-9A-Za-z]{6}$/);
  expect(new Set(tokens).size).toBe(tokens.length);
});

test("mintToken uses every character equally often in every position", () => {
  const random = tokens.map((token) => token.slice(PREFIX.length, -6));
  const all = random.join("");
  const expected = all.length / BASE62.length;
  for (const character of BASE62) {
    // Six standard deviations.
    const off = Math.abs(all.split(character).length - 1 - expected);
    expect([character, off < 6 * Math.sqrt(expected)]).toEqual([character, true]);
  }
  for (let at = 0; at < 43; at++) {
    expect(new Set(random.map((text) => text.charAt(at))).size).toBe(BASE62.length);
  }
});

test.each([0, 1, 24, 1000])("randomBase62 returns %i characters", (length) => {
  expect(randomBase62(length)).toMatch(new RegExp(`^[0-9A-Za-z]{${length}}$`));
});

test("hasInvalidChecksum accepts tokens minted by this and other implementations", () => {
  fc.assert(fc.property(minted, (token) => !hasInvalidChecksum(token)));
  expect(MINTED_ELSEWHERE.map(hasInvalidChecksum)).toEqual([false, false, false]);
});

test("hasInvalidChecksum detects every changed character", () => {
  fc.assert(
    fc.property(minted, place, fc.constantFrom(...BASE62, "-", "_", " "), (token, at, other) => {
      fc.pre(token.charAt(at) !== other);
      expect(hasInvalidChecksum(token.slice(0, at) + other + token.slice(at + 1))).toBe(true);
    }),
    { numRuns: 2000 },
  );
});

test("hasInvalidChecksum detects every swap of two neighbors", () => {
  fc.assert(
    fc.property(minted, place, (token, at) => {
      fc.pre(at + 1 < token.length && token.charAt(at) !== token.charAt(at + 1));
      const swapped = token.charAt(at + 1) + token.charAt(at);
      expect(hasInvalidChecksum(token.slice(0, at) + swapped + token.slice(at + 2))).toBe(true);
    }),
    { numRuns: 2000 },
  );
});

test("hasInvalidChecksum detects every truncated token", () => {
  fc.assert(fc.property(minted, place, (token, at) => hasInvalidChecksum(token.slice(0, at))));
});

test.each(["", "a", "todo", "TODO_x", "ghp_abcdef", "6f1ed002ab5595859014ebf0951522d9"])(
  "hasInvalidChecksum ignores %j, which is not one of our tokens",
  (token) => {
    expect(hasInvalidChecksum(token)).toBe(false);
  },
);

test.each([
  ["abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"],
  ["", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"],
  ["tökén", "c61a705e32913a858921fec03c7dc0259250783f37e3d82341e7bda6fe7e7833"],
])("hashToken returns the SHA-256 of %j", (token, hex) => {
  expect(hashToken(token).toString("hex")).toBe(hex);
});
