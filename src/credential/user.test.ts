import { expect, test } from "bun:test";
import fc from "fast-check";
import {
  createFixedUserCheck,
  createUserCheck,
  parseUsers,
  removeUserEntry,
  setUserEntry,
  type VerifyPassword,
  validatePassword,
  validateUserName,
} from "./user.ts";

/** Written by Apache's htpasswd; the password is "secret". */
const BCRYPT = "$2y$05$7IL2tOezyab7maxiTsBLY..4UosIOyqFIABzRuFkcvoNXI.tP//cK";
const ARGON2ID =
  "$argon2id$v=19$m=8,t=1,p=1$KDlEj2b6OQNVYFDEl8rqP6C5j41OfDlEVbXwxHmzpg0$qlIwBiCL6KUSKtjIta92ltn+jyaFdpcgil+98cZleKM";
const COSTLY_ARGON2ID = ARGON2ID.replace("m=8,t=1,p=1", "m=65536,t=10,p=16");
const MINUTE = 60_000;

const check = createFixedUserCheck("Zoë", "a:b 😀");

test.each<[user: string, password: string, passes: boolean]>([
  ["Zoë", "a:b 😀", true],
  ["Zoë", "a:b 😁", false],
  ["Zoë", "a:b", false],
  ["Zoë", "a:b 😀 ", false],
  ["Zoë", "", false],
  ["zoë", "a:b 😀", false],
  ["Zoe\u0308", "a:b 😀", false],
  ["", "a:b 😀", false],
  ["", "", false],
  ["a:b 😀", "Zoë", false],
  ["Zoëa", ":b 😀", false],
])("createFixedUserCheck accepts user %j with password %j: %p", (user, password, passes) => {
  expect(check(user, password)).toBe(passes);
});

test("createFixedUserCheck accepts an empty user name and password only if they are configured", () => {
  expect([createFixedUserCheck("", "")("", ""), createFixedUserCheck("", "")("", "x")]).toEqual([
    true,
    false,
  ]);
});

function checking(initial: Readonly<Record<string, string>>) {
  const hashes = new Map(Object.entries(initial));
  const verified: (readonly [password: string, passwordHash: string])[] = [];
  const time = { ms: 0 };
  const verify: VerifyPassword = async (password, passwordHash) => {
    verified.push([password, passwordHash]);
    return passwordHash.endsWith(`:${password}`);
  };
  const now = () => time.ms;
  return { check: createUserCheck(() => hashes, verify, now), hashes, verified, time };
}

test("createUserCheck accepts only the user's own password", async () => {
  const { check } = checking({ alice: "hash:one", bob: "hash:two" });
  expect(await check("alice", "one")).toBe(true);
  expect(await check("bob", "two")).toBe(true);
  for (const [user, password] of [
    ["alice", "two"],
    ["alice", ""],
    ["Alice", "one"],
    ["carol", "one"],
    ["", "one"],
    ["__proto__", "one"],
  ] as const) {
    expect([user, password, await check(user, password)]).toEqual([user, password, false]);
  }
  expect(await checking({}).check("alice", "one")).toBe(false);
});

test("createUserCheck does not cache a success for another user's hash", async () => {
  const { check, hashes } = checking({ alice: "hash:one", bob: "hash:two" });
  expect(await check("alice", "one")).toBe(true);
  hashes.clear();
  hashes.set("zoe", "hash:one");
  expect(await check("alice", "one")).toBe(false);
  expect(await check("zoe", "one")).toBe(true);
});

test("createUserCheck verifies and rejects passwords of unknown users", async () => {
  const { check, verified } = checking({ alice: "hash:one" });
  expect(await check("nobody", "wrong")).toBe(false);
  expect(await check("nobody", "one")).toBe(false);
  expect(await check("nobody", "one")).toBe(false);
  expect(verified).toEqual([
    ["wrong", "hash:one"],
    ["one", "hash:one"],
    ["one", "hash:one"],
  ]);
});

test("createUserCheck caches a success for one minute", async () => {
  const { check, verified, time } = checking({ alice: "hash:one" });
  const at = async (ms: number): Promise<number> => {
    time.ms = ms;
    expect(await check("alice", "one")).toBe(true);
    return verified.length;
  };
  expect([await at(0), await at(1), await at(MINUTE - 1), await at(MINUTE)]).toEqual([1, 1, 1, 2]);
  expect([await at(2 * MINUTE - 1), await at(2 * MINUTE)]).toEqual([2, 3]);
});

test("createUserCheck caches a success for one combination of user, password and hash", async () => {
  const { check, hashes, verified } = checking({ alice: "hash:one", bob: "other:one" });
  expect(await check("alice", "one")).toBe(true);
  // A failure is not cached.
  for (const _ of [1, 2]) expect(await check("alice", "two")).toBe(false);
  expect(await check("bob", "one")).toBe(true);
  expect(verified.length).toBe(4);
  hashes.set("alice", "new:two");
  expect([await check("alice", "one"), await check("alice", "two")]).toEqual([false, true]);
  hashes.delete("bob");
  expect(await check("bob", "one")).toBe(false);
  expect(verified.length).toBe(7);
});

test("createUserCheck verifies concurrent requests with the same password once", async () => {
  const { check, verified } = checking({ alice: "hash:one", bob: "hash:two" });
  const together = (user: string, password: string) =>
    Promise.all(Array.from({ length: 20 }, () => check(user, password)));
  expect(await together("alice", "one")).toEqual(new Array(20).fill(true));
  expect(await together("bob", "one")).toEqual(new Array(20).fill(false));
  expect(await together("stranger", "one")).toEqual(new Array(20).fill(false));
  expect(verified.length).toBe(3);
  expect(await check("bob", "one")).toBe(false);
  expect(verified.length).toBe(4);
});

test("createUserCheck caches at most a thousand successes and evicts the oldest", async () => {
  const names = Array.from({ length: 1001 }, (_, index) => `user${index}`);
  const { check, verified } = checking(Object.fromEntries(names.map((name) => [name, "hash:one"])));
  for (const name of names) await check(name, "one");
  await check("user1", "one");
  expect(verified.length).toBe(1001);
  await check("user0", "one");
  expect(verified.length).toBe(1002);
});

test("createUserCheck throws when verification fails and verifies again later", async () => {
  let isDown = true;
  const verify = async () => {
    if (isDown) throw new Error("no memory");
    return true;
  };
  const check = createUserCheck(
    () => new Map([["alice", "hash"]]),
    verify,
    () => 0,
  );
  expect(await Promise.resolve(check("alice", "one")).catch(String)).toBe("Error: no memory");
  isDown = false;
  expect(await check("alice", "one")).toBe(true);
});

test.each<[what: string, hash: string, password: string, verifications: number]>([
  ["72 bytes for bcrypt", BCRYPT, "x".repeat(72), 1],
  ["73 bytes for bcrypt", BCRYPT, "x".repeat(73), 0],
  ["73 bytes in 37 characters for bcrypt", BCRYPT, `x${"é".repeat(36)}`, 0],
  ["1000 bytes for argon2id", ARGON2ID, "x".repeat(1000), 1],
])("createUserCheck verifies only what the hash covers: %s", async (_what, hash, password, verifications) => {
  const { check, verified } = checking({ alice: hash });
  expect(await check("alice", password)).toBe(false);
  expect(verified.length).toBe(verifications);
});

const NO_HASH = "(bob) has no whole hash of bcrypt (htpasswd -B) or argon2id";

test.each<[what: string, text: string, users: Readonly<Record<string, string>>]>([
  ["an empty file", "", {}],
  ["blank lines and comments", "\n \n# bob:x\n", {}],
  ["a line of Apache's htpasswd", `bob:${BCRYPT}\n\n`, { bob: BCRYPT }],
  ["argon2id", `bob:${ARGON2ID}`, { bob: ARGON2ID }],
  ["argon2id with a higher cost", `bob:${COSTLY_ARGON2ID}`, { bob: COSTLY_ARGON2ID }],
  ["Windows line breaks", `bob:${BCRYPT}\r\nalice:${ARGON2ID}\r\n`, { bob: BCRYPT, alice: ARGON2ID }],
  [
    "names of object properties",
    `__proto__:${BCRYPT}\nconstructor:${BCRYPT}`,
    { ["__proto__"]: BCRYPT, constructor: BCRYPT },
  ],
  ["the byte order mark character in a name", `bob\ufeff:${BCRYPT}`, { "bob\ufeff": BCRYPT }],
])("parseUsers parses %s", (_what, text, users) => {
  expect([...parseUsers(text)]).toEqual(Object.entries(users));
});

test.each<[what: string, text: string, message: string]>([
  ["no colon", `\nbob`, 'line 2 is not "user:hash"'],
  ["no user", `:${BCRYPT}`, 'line 1 is not "user:hash"'],
  ["a repeated user", `bob:${BCRYPT}\nal:${BCRYPT}\nbob:${ARGON2ID}`, "line 3 names bob a second time"],
  ["a hash of another kind", "bob:$apr1$if4VvfQf$H3L.N4bnUtfk9sdo842CJ/", NO_HASH],
  ["argon2i", `bob:${ARGON2ID.replace("argon2id", "argon2i")}`, NO_HASH],
  ["an incomplete bcrypt hash", `bob:${BCRYPT.slice(0, -1)}`, NO_HASH],
  ["bcrypt with a cost that does not exist", `bob:${BCRYPT.replace("$05$", "$03$")}`, NO_HASH],
  ["text before argon2id", `bob:!${ARGON2ID}`, NO_HASH],
  ["a password", "bob:hunter2", NO_HASH],
  ["no hash", "bob:", NO_HASH],
  ["text after a hash", `bob:${BCRYPT}:Bob`, NO_HASH],
])("parseUsers rejects %s and names line and user", (_what, text, message) => {
  expect(() => parseUsers(text)).toThrow(message);
  expect(() => parseUsers(`# users\n${text}`)).toThrow(/^line \d+ /);
  for (const secret of ["hunter2", BCRYPT, ARGON2ID])
    expect(() => parseUsers(text)).toThrow(expect.not.stringContaining(secret));
});

test.each(["alice", "Zoë 😀", "-a", "__proto__", "x".repeat(193), `${"é".repeat(96)}x`])(
  "validateUserName accepts %j",
  (name) => {
    expect(validateUserName(name)).toBe(name);
  },
);

test.each<[message: string, names: readonly string[]]>([
  ["empty", [""]],
  ["colon", ["a:b"]],
  ["control", ["a\nb"]],
  ["UTF-8", ["\ufffd"]],
  ["#", ["#a"]],
  ["blank", [" a", "a ", "\ufeffa"]],
  ["193 bytes", ["x".repeat(194), "é".repeat(97)]],
])("validateUserName rejects with the message %s: %j", (message, names) => {
  for (const name of names) expect(() => validateUserName(name)).toThrow(message);
});

test.each([
  ...["12345678", " ".repeat(8), "#a:b c d", "é".repeat(36), "x".repeat(72)],
  ...["\ufeffabcdefg", "😀".repeat(8)],
])("validatePassword accepts %j", (password) => {
  expect(validatePassword("hunter", password)).toBe(password);
});

test.each<[password: string, message: string]>([
  ["", "at least 8 characters"],
  ["hunter2", "at least 8 characters"],
  ["😀".repeat(7), "at least 8 characters"],
  ["HUNTER2-user", "not be the user's name"],
  ["hunter22\r", "control"],
  ["hunter22\ufffd", "UTF-8"],
  [`hunter2${"x".repeat(66)}`, "72 bytes"],
  [`hunter2${"é".repeat(33)}`, "72 bytes"],
])("validatePassword rejects %j without repeating it", (password, message) => {
  expect(() => validatePassword("hunter2-user", password)).toThrow(message);
  expect(() => validatePassword("hunter2-user", password)).toThrow(expect.not.stringContaining("hunter2"));
});

const NEW = BCRYPT.replace("$05$", "$12$");

test.each<[what: string, text: string, user: string, changed: string]>([
  ["no lines", "", "bob", `bob:${NEW}\n`],
  ["no line break at the end", `al:${BCRYPT}`, "bob", `al:${BCRYPT}\nbob:${NEW}\n`],
  ["Windows line breaks", `al:${BCRYPT}\r\n`, "bob", `al:${BCRYPT}\r\nbob:${NEW}\r\n`],
  ["mixed line breaks", `al:${BCRYPT}\n# users\r\n`, "bob", `al:${BCRYPT}\n# users\r\nbob:${NEW}\n`],
])("setUserEntry sets a hash in a file with %s", (_what, text, user, changed) => {
  expect(setUserEntry(text, user, NEW)).toBe(changed);
});

const HEADING = "# One line user:hash per user\n";

test.each<[what: string, text: string, changed: string]>([
  ["the only user", `bob:${BCRYPT}\n`, HEADING],
  ["the only user, above blank lines", `bob:${BCRYPT}\n \r\n `, " \r\n "],
])("removeUserEntry removes %s", (_what, text, changed) => {
  expect(removeUserEntry(text, "bob")).toBe(changed);
});

test("setUserEntry and removeUserEntry change no other line", () => {
  const names = ["al", "bob", "bobby", "a.b", "__proto__"];
  const entries = names.map((name) => `${name}:${BCRYPT}`);
  const others = ["", " ", "#", "#bob:x", "# \u2028bob:x\r#"];
  const breaks = fc.array(fc.constantFrom("\n", "\r\n"), { minLength: 10, maxLength: 10 });
  const lines = fc.shuffledSubarray([...entries, ...others]);
  fc.assert(
    fc.property(lines, breaks, fc.boolean(), fc.constantFrom(...names), (lines, breaks, ends, name) => {
      const textOf = (edit: (line: string) => readonly string[]): string =>
        lines
          .flatMap((line, index) =>
            edit(line).map((edited) => edited + (ends || index < lines.length - 1 ? breaks[index] : "")),
          )
          .join("");
      const isUser = (line: string): boolean => line.startsWith(`${name}:`);
      const text = textOf((line) => [line]);
      const users = parseUsers(text);

      const set = setUserEntry(text, name, ARGON2ID);
      expect(parseUsers(set)).toEqual(new Map(users).set(name, ARGON2ID));
      if (users.has(name)) expect(set).toBe(textOf((line) => [isUser(line) ? `${name}:${ARGON2ID}` : line]));
      else expect(set).toStartWith(text);

      const removed = removeUserEntry(text, name);
      users.delete(name);
      expect(parseUsers(removed)).toEqual(users);
      expect(removed).toStartWith(textOf((line) => (isUser(line) ? [] : [line])));
      expect(removed).not.toBe("");
    }),
  );
});
