import { expect, test } from "bun:test";
import fc from "fast-check";
import { type BasicCredential, type ParsedAuthorization, parseBasic, parseBearer } from "./authorization.ts";

const base64 = (text: string | Uint8Array): string => Buffer.from(text).toString("base64");
const presented = <Credential>(credential: Credential) => ({ state: "presented", credential }) as const;
const malformed = { state: "malformed" } as const;
const pair = (user: string, password: string) => presented({ user, password });
const SIGNS = "!\"#$%&'()*+-./:;<=>?@[\\]^_`{|}~";
const absent = { state: "absent" } as const;

test.each<[outcome: ParsedAuthorization<string>, headers: readonly (string | null)[]]>([
  [absent, [null, "", "todo_abc", "Basic YTpi", "Bearerabc", "Bearer-Token abc", "X Bearer abc"]],
  [presented("abc"), ["Bearer abc", "bearer abc", "BEARER   abc"]],
  [presented("a"), ["Bearer a"]],
  [presented("Bearer"), ["Bearer Bearer"]],
  [presented(SIGNS), [`Bearer ${SIGNS}`]],
  [malformed, ["Bearer", "Bearer ", "Bearer abc def", "Bearer abc ", "Bearer abc,def"]],
  [malformed, ["Bearer abc, Bearer abc", "Bearer abc\tdef", "Bearer abc\n", "Bearer clé"]],
  [malformed, ["Bearer \0", "Bearer \x7f"]],
])("parseBearer returns %j for %j", (outcome, headers) => {
  for (const header of headers) expect([header, parseBearer(header)]).toEqual([header, outcome]);
});

type BasicRow = [outcome: ParsedAuthorization<BasicCredential>, headers: readonly (string | null)[]];

test.each<BasicRow>([
  [absent, [null, "", "Bearer abc", `Basic${base64("a:b")}`]],
  [pair("a", "b"), [`Basic ${base64("a:b")}`, `basic ${base64("a:b")}`, `BASIC  ${base64("a:b")}`]],
  [pair("a", "b:c:"), [`Basic ${base64("a:b:c:")}`]],
  [pair("a", ""), [`Basic ${base64("a:")}`]],
  [pair("", "b"), [`Basic ${base64(":b")}`]],
  [pair("", ""), [`Basic ${base64(":")}`]],
  [pair("a", " b "), [`Basic ${base64("a: b ")}`]],
  [pair("Zoë", "😀"), [`Basic ${base64("Zoë:😀")}`]],
  [pair("a", "\u00a0\ufeff"), [`Basic ${base64("a:\u00a0\ufeff")}`]],
  [malformed, ["Basic", "Basic ", "Basic ====", "Basic YTpi!", "Basic YT pi", `Basic ${base64("ab")}`]],
  [malformed, [`Basic ${base64("a:bc").replaceAll("=", "")}`, `Basic ${base64("a:b")}=`]],
  [malformed, [`Basic ${base64("a:bc")} `, `Basic ${base64("a:b")} ${base64("a:b")}`]],
  [malformed, [`Basic ${base64("a:b")}, Basic ${base64("a:b")}`]],
  // The base64url alphabet, and non-zero bits after the end.
  [malformed, ["Basic YTo_Pz8-", "Basic YTpiYx=="]],
  ...[[0xff], [0xc0, 0xaf], [0xed, 0xa0, 0x80]].map(
    (bytes): BasicRow => [malformed, [`Basic ${base64(Uint8Array.of(0x61, 0x3a, ...bytes))}`]],
  ),
  [malformed, ["a:b\0", "a\n:b", "a:b\r\n", "a:\x7f"].map((text) => `Basic ${base64(text)}`)],
])("parseBasic returns %j for %j", (outcome, headers) => {
  for (const header of headers) expect([header, parseBasic(header)]).toEqual([header, outcome]);
});

// biome-ignore lint/suspicious/noControlCharactersInRegex: RFC 7617 forbids them
const text = fc.string({ unit: "grapheme" }).filter((given) => !/[\x00-\x1f\x7f]/.test(given));

test("parseBasic parses every encoded user name and password", () => {
  fc.assert(
    fc.property(
      text.filter((user) => !user.includes(":")),
      text,
      (user, password) => {
        expect(parseBasic(`Basic ${base64(`${user}:${password}`)}`)).toEqual(presented({ user, password }));
      },
    ),
  );
});

test("parseBasic accepts only one encoding of a user name and password", () => {
  fc.assert(
    fc.property(fc.string({ minLength: 1 }), (spelling) => {
      const outcome = parseBasic(`Basic ${spelling}`);
      if (outcome.state !== "presented") return;
      const { user, password } = outcome.credential;
      expect(spelling.trimStart()).toBe(base64(`${user}:${password}`));
    }),
    { examples: [["YTpi"], ["YTpiYw=="], ["YTpiYw"], ["YTpiYx=="]] },
  );
});
