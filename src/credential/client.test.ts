import { expect, test } from "bun:test";
import { createHash } from "node:crypto";
import { createClientLookup, parseClients } from "./client.ts";
import { mintToken } from "./token.ts";

const sha256 = (token: string): string => createHash("sha256").update(token).digest("hex");
const [HEX, OTHER_HEX] = [sha256("one"), sha256("other")];

test("createClientLookup stores only the hash of a token", () => {
  const token = mintToken();
  const stored = parseClients(`alice:${sha256(token)}\n`);
  expect(stored).toEqual([{ client: { name: "alice" }, tokenHash: Buffer.from(sha256(token), "hex") }]);
  expect(Bun.inspect(stored, { depth: Number.POSITIVE_INFINITY })).not.toContain(token.slice(5, 15));
  expect(createClientLookup(stored)(token)).toEqual({ name: "alice" });
  // The token itself is not accepted in place of its hash, and not repeated.
  for (const message of ["SHA-256", expect.not.stringContaining(token)])
    expect(() => parseClients(`alice:${token}\n`)).toThrow(message);
});

test("createClientLookup finds the client by the hash of the token", () => {
  const token = mintToken();
  const lookup = createClientLookup(parseClients(`other:${OTHER_HEX}\nalice:${sha256(token)}\n`));
  expect(lookup(token)).toEqual({ name: "alice" });
  expect(lookup("other")).toEqual({ name: "other" });
  for (const hash of [sha256(token), Buffer.from(sha256(token), "hex").toString("latin1")]) {
    expect(lookup(hash)).toBeUndefined();
  }
});

test.each(["", "on", "onee", "One", "one ", "alice", "__proto__", "constructor"])(
  "createClientLookup rejects the unknown token %j",
  (token) => {
    expect(createClientLookup(parseClients(`alice:${HEX}`))(token)).toBeUndefined();
    expect(createClientLookup([])(token)).toBeUndefined();
  },
);

test.each<[what: string, text: string, names: readonly string[]]>([
  ["an empty file", "", []],
  ["blank lines and comments", "\n  \n# alice:x\n#\n\n", []],
  ["one line", `alice:${HEX}\n`, ["alice"]],
  ["a last line without a line break", `alice:${HEX}\nbob:${OTHER_HEX}`, ["alice", "bob"]],
  ["Windows line breaks", `alice:${HEX}\r\n\r\nbob:${OTHER_HEX}\r\n`, ["alice", "bob"]],
  ["uppercase digits", `alice:${HEX.toUpperCase()}`, ["alice"]],
  ["surrounding whitespace", `  alice : ${HEX} `, ["alice"]],
  ["a byte order mark", `\ufeffalice:${HEX}`, ["alice"]],
  ["colons in the name", `urn:team:alice:${HEX}`, ["urn:team:alice"]],
  ["a scope", `alice:${HEX}:read\nbob : ${OTHER_HEX.toUpperCase()} : write `, ["alice", "bob"]],
  ["other scripts", `Zoë 😀:${HEX}`, ["Zoë 😀"]],
  ["two tokens of one client", `alice:${HEX}\nalice:${OTHER_HEX}`, ["alice", "alice"]],
])("parseClients parses %s", (_what, text, names) => {
  expect(parseClients(text).map(({ client }) => client.name)).toEqual([...names]);
});

test("parseClients gives a client the scope after the hash", () => {
  const text = `alice:${HEX}: read\nurn:read:${OTHER_HEX}:write\ncarol:${sha256("carol")}`;
  expect(parseClients(text).map(({ client }) => client)).toEqual([
    { name: "alice", scope: "read" },
    { name: "urn:read", scope: "write" },
    { name: "carol" },
  ]);
});

test.each<[what: string, text: string, message: string]>([
  ["an unknown scope", `alice:${HEX}:admin`, 'line 1 has a scope other than "read" and "write"'],
  ["an empty scope", `alice:${HEX}:`, 'line 1 has a scope other than "read" and "write"'],
  ["a scope in capitals", `alice:${HEX}:READ`, 'line 1 has a scope other than "read" and "write"'],
  ["no colon", `# who\nalice ${HEX}`, 'line 2 is not "name:SHA-256 of the token in hex"'],
  ["no name", `:${HEX}`, 'line 1 is not "name:SHA-256 of the token in hex"'],
  ["a blank name", `\n\n  :${HEX}`, 'line 3 is not "name:SHA-256 of the token in hex"'],
  ["a control character", `a\x07lice:${HEX}`, "line 1 has a control character in the name"],
  ["a token", `alice:${mintToken()}`, "line 1 has no SHA-256 in hex after the last colon"],
  ["too few digits", `bob:${OTHER_HEX}\nalice:${HEX.slice(1)}`, "line 2 has no SHA-256 in hex"],
  ["too many digits", `alice:${HEX}0`, "line 1 has no SHA-256 in hex"],
  ["a character that is not hexadecimal", `alice:${HEX.slice(1)}g`, "line 1 has no SHA-256 in hex"],
  ["the file name that sha256sum prints", `alice:${HEX}  -`, "line 1 has no SHA-256 in hex"],
  ["a repeated token", `alice:${HEX}\n\nbob:${HEX.toUpperCase()}`, "line 3 has the same token as line 1"],
])("parseClients rejects %s and names the line", (_what, text, message) => {
  expect(() => parseClients(text)).toThrow(message);
});
