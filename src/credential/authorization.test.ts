import { expect, test } from "bun:test";
import fc from "fast-check";
import { type BasicCredential, type ParsedAuthorization, parseBasic, parseBearer } from "./authorization.ts";

const base64 = (text: string | Uint8Array): string => Buffer.from(text).toString("base64");
const presented = <Credential>(credential: Credential) => ({ state: "presented", credential }) as const;
const malformed = { state: "malformed" } as const;
const absent = { state: "absent" } as const;

test.each<[header: string | null, outcome: ParsedAuthorization<string>]>([
  [null, absent],
  ["", absent],
  ["todo_abc", absent],
  ["Basic YTpi", absent],
  ["Bearerabc", absent],
  ["Bearer-Token abc", absent],
  ["X Bearer abc", absent],
  ["Bearer abc", presented("abc")],
  ["bearer abc", presented("abc")],
  ["BEARER   abc", presented("abc")],
  ["Bearer a", presented("a")],
  ["Bearer Bearer", presented("Bearer")],
  ["Bearer !\"#$%&'()*+-./:;<=>?@[\\]^_`{|}~", presented("!\"#$%&'()*+-./:;<=>?@[\\]^_`{|}~")],
  ["Bearer", malformed],
  ["Bearer ", malformed],
  ["Bearer abc def", malformed],
  ["Bearer abc ", malformed],
  ["Bearer abc,def", malformed],
  ["Bearer abc, Bearer abc", malformed],
  ["Bearer abc\tdef", malformed],
  ["Bearer abc\n", malformed],
  ["Bearer \0", malformed],
  ["Bearer \x7f", malformed],
  ["Bearer clé", malformed],
])("parseBearer parses %j", (header, outcome) => {
  expect(parseBearer(header)).toEqual(outcome);
});

test.each<[header: string | null, outcome: ParsedAuthorization<BasicCredential>]>([
  [null, absent],
  ["", absent],
  ["Bearer abc", absent],
  [`Basic${base64("a:b")}`, absent],
  [`Basic ${base64("a:b")}`, presented({ user: "a", password: "b" })],
  [`basic ${base64("a:b")}`, presented({ user: "a", password: "b" })],
  [`BASIC  ${base64("a:b")}`, presented({ user: "a", password: "b" })],
  [`Basic ${base64("a:b:c:")}`, presented({ user: "a", password: "b:c:" })],
  [`Basic ${base64("a:")}`, presented({ user: "a", password: "" })],
  [`Basic ${base64(":b")}`, presented({ user: "", password: "b" })],
  [`Basic ${base64(":")}`, presented({ user: "", password: "" })],
  [`Basic ${base64("a: b ")}`, presented({ user: "a", password: " b " })],
  [`Basic ${base64("Zoë:😀")}`, presented({ user: "Zoë", password: "😀" })],
  [`Basic ${base64("a:\u00a0\ufeff")}`, presented({ user: "a", password: "\u00a0\ufeff" })],
  ["Basic", malformed],
  ["Basic ", malformed],
  ["Basic ====", malformed],
  [`Basic ${base64("ab")}`, malformed],
  [`Basic ${base64("a:bc").replaceAll("=", "")}`, malformed],
  [`Basic ${base64("a:b")}=`, malformed],
  [`Basic ${base64("a:bc")} `, malformed],
  [`Basic ${base64("a:b")} ${base64("a:b")}`, malformed],
  [`Basic ${base64("a:b")}, Basic ${base64("a:b")}`, malformed],
  ["Basic YTpi!", malformed],
  ["Basic YT pi", malformed],
  // The base64url alphabet, and non-zero bits after the end.
  ["Basic YTo_Pz8-", malformed],
  ["Basic YTpiYx==", malformed],
  [`Basic ${base64(Uint8Array.of(0x61, 0x3a, 0xff))}`, malformed],
  [`Basic ${base64(Uint8Array.of(0x61, 0x3a, 0xc0, 0xaf))}`, malformed],
  [`Basic ${base64(Uint8Array.of(0x61, 0x3a, 0xed, 0xa0, 0x80))}`, malformed],
  [`Basic ${base64("a:b\0")}`, malformed],
  [`Basic ${base64("a\n:b")}`, malformed],
  [`Basic ${base64("a:b\r\n")}`, malformed],
  [`Basic ${base64("a:\x7f")}`, malformed],
])("parseBasic parses %j", (header, outcome) => {
  expect(parseBasic(header)).toEqual(outcome);
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
