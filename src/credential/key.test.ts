import { expect, test } from "bun:test";
import { mint } from "../../test/credentials.ts";
import { errorOf, errorsOf } from "../../test/rejection.ts";
import { ServiceError } from "../error.ts";
import { openMemory } from "../storage/memory/store.ts";
import type { Scope } from "./client.ts";
import {
  createKey,
  createKeyLookup,
  formatTime,
  isKeyId,
  type Key,
  type KeyStore,
  parseKeyName,
  parseLifetime,
  parseNewKey,
  parseOverlap,
  parseRotation,
  rotateKey,
} from "./key.ts";
import { hashToken, mintToken } from "./token.ts";

const NOW = Date.UTC(2026, 0, 2, 3, 4, 5, 678);
const SECOND = 1000;
const HOUR = 3600 * SECOND;
const DAY = 24 * HOUR;

test.each(["a", "ci", " ci ", "Zoë 😀", "a:b", "__proto__", "a\u2028b", "x".repeat(100), "😀".repeat(100)])(
  "parseKeyName accepts %j unchanged",
  (name) => {
    expect(parseKeyName(name)).toBe(name);
  },
);

test.each<[what: string, name: unknown, messages: readonly string[]]>([
  ["undefined", undefined, ["is required"]],
  ["null", null, ["must be a string"]],
  ["a list", ["ci"], ["must be a string"]],
  ["an empty name", "", ["must not be empty"]],
  ["101 characters", "x".repeat(101), ["must be at most 100 characters"]],
  ["a line break", "a\nb", ["must have no control characters"]],
  ["a token", mintToken(), ["must not be a token"]],
  ["a C1 control character", "a\u0085b", ["must have no control characters"]],
  ["a lone surrogate", "\ud800", ["must be well-formed Unicode, without lone surrogates"]],
  [
    "101 tabs",
    "\t".repeat(101),
    ["must not be empty", "must be at most 100 characters", "must have no control characters"],
  ],
])("parseKeyName rejects %s", (_what, name, messages) => {
  expect(errorsOf(() => parseKeyName(name))).toEqual(messages.map((message) => ({ field: "name", message })));
});

test("parseLifetime returns no lifetime by default", () => {
  expect([parseLifetime(undefined), parseLifetime("1s")]).toEqual([undefined, SECOND]);
});

test.each(["0", "0d", "000s"])("parseLifetime rejects %j, which could be mistaken for no expiry", (text) => {
  expect(errorsOf(() => parseLifetime(text))).toEqual([
    {
      field: "expires",
      message: "must be longer than 0; leave it out for a key that does not expire",
    },
  ]);
});

test("parseOverlap returns 24 hours by default and accepts 0", () => {
  expect([parseOverlap(undefined), parseOverlap("0"), parseOverlap("1h")]).toEqual([DAY, 0, HOUR]);
});

test.each<[what: string, body: object, lifetime: number | undefined, scope: Scope]>([
  ["a name", {}, undefined, "write"],
  ["the default scope", { scope: "write" }, undefined, "write"],
  ["a scope", { scope: "read" }, undefined, "read"],
  ["a lifetime", { expires: "90d" }, 90 * DAY, "write"],
  ["other properties", { id: "x", token: "t", createdAt: 0 }, undefined, "write"],
])("parseNewKey parses %s", (_what, body, lifetime, scope) => {
  expect(parseNewKey({ name: "ci", ...body })).toEqual({ name: "ci", lifetime, scope });
});

test.each(["Read", "", "admin", null, 1, {}])("parseNewKey rejects the scope %j", (scope) => {
  expect(errorsOf(() => parseNewKey({ name: "ci", scope }))).toEqual([
    { field: "scope", message: 'must be "read" or "write"' },
  ]);
});

test.each<[what: string, body: unknown, fields: readonly string[]]>([
  ["undefined", undefined, ["name"]],
  ["null", null, ["name"]],
  ["a list", ["ci"], ["name"]],
  ["an invalid name", { name: " " }, ["name"]],
  ["an invalid lifetime", { name: "ci", expires: "1y" }, ["expires"]],
  ["an invalid name and an invalid lifetime", { name: "\t", expires: 0 }, ["name", "name", "expires"]],
])("parseNewKey rejects %s", (_what, body, fields) => {
  expect(errorsOf(() => parseNewKey(body)).map(({ field }) => field)).toEqual([...fields]);
});

test("parseRotation returns the overlap", () => {
  expect([{}, { overlap: "0" }, { overlap: "2h", x: 1 }].map(parseRotation)).toEqual([DAY, 0, 2 * HOUR]);
});

test("parseRotation rejects invalid bodies instead of using the default", () => {
  for (const body of [null, "0", 0, [], [{ overlap: "0" }], { overlap: "soon" }, { overlap: null }]) {
    expect(errorsOf(() => parseRotation(body)).map(({ field }) => field)).toEqual(["overlap"]);
  }
});

test("formatTime returns UTC to the second", () => {
  expect(formatTime(NOW)).toBe("2026-01-02T03:04:05Z");
  expect(formatTime(NOW + 36_500 * DAY)).toBe("2125-12-09T03:04:05Z");
});

test("isKeyId accepts new ids and rejects tokens", async () => {
  const minted = await createKey(openMemory().keys, "ci", undefined, NOW);
  expect(isKeyId(minted?.key.id ?? "")).toBe(true);
  for (const text of ["", "a", "1234567", "123456789", "1234 678", "1234567\n", mintToken()]) {
    expect([text, isKeyId(text)]).toEqual([text, false]);
  }
});

const createdKey = (keys: KeyStore, name: string, lifetime?: number, now = NOW) =>
  mint(keys, name, { lifetime, now });

async function rotated(keys: KeyStore, { id }: Key, overlap: number, now = NOW) {
  const minted = await rotateKey(keys, id, overlap, now);
  if (minted === undefined) throw new Error(`${id} was not rotated`);
  return minted;
}

const nameAt = async (keys: KeyStore, token: string, now: number) =>
  (await createKeyLookup(keys, () => now)(token))?.name;

test("createKey stores the hash of a token that is shown once", async () => {
  const { keys } = openMemory();
  const { key, token } = await createdKey(keys, "ci", DAY);
  expect(key).toEqual({
    id: expect.any(String),
    name: "ci",
    scope: "write",
    createdAt: NOW,
    expiresAt: NOW + DAY,
    lifetime: DAY,
  });
  expect(await keys.find(hashToken(token))).toEqual({ ...key, tokenHash: hashToken(token) });
  expect(Object.keys(key)).not.toContain("tokenHash");
  expect(Bun.inspect(keys, { depth: Number.POSITIVE_INFINITY })).not.toContain(token.slice(5, 15));
});

test("createKeyLookup accepts a key until it expires", async () => {
  const { keys } = openMemory();
  const { token } = await createdKey(keys, "ci", DAY);
  expect(await nameAt(keys, token, NOW)).toBe("ci");
  expect(await nameAt(keys, token, NOW + DAY - 1)).toBe("ci");
  expect(await nameAt(keys, token, NOW + DAY)).toBeUndefined();
  const lasting = await createdKey(keys, "backup");
  expect(await nameAt(keys, lasting.token, NOW + 36_500 * DAY)).toBe("backup");
});

test("createKeyLookup accepts the token, but not its id, name or hash", async () => {
  const { keys } = openMemory();
  const { key, token } = await createdKey(keys, "ci");
  const hashes = ["hex", "latin1"].map((encoding) =>
    hashToken(token).toString(encoding === "hex" ? "hex" : "latin1"),
  );
  for (const other of ["", "ci", key.id, token.slice(0, -1), `${token}x`, ...hashes])
    expect(await nameAt(keys, other, NOW)).toBeUndefined();
});

test("createKeyLookup compares the hash that the store returns", async () => {
  const { keys } = openMemory();
  const { key, token } = await createdKey(keys, "ci");
  const careless: KeyStore = {
    ...keys,
    find: () => ({ ...key, tokenHash: hashToken(token) }),
    recordUse: () => {},
  };
  expect(await nameAt(careless, token, NOW)).toBe("ci");
  expect(await nameAt(careless, mintToken(), NOW)).toBeUndefined();
});

test("createKeyLookup records a use once a second, but no rejection", async () => {
  const { keys } = openMemory();
  const { token } = await createdKey(keys, "ci", DAY);
  const lastUse = async () => (await keys.list())[0]?.lastUsedAt;
  for (const [usedAt, recorded] of [
    [5, 5],
    [1004, 5],
    [1005, 1005],
    [DAY, 1005],
  ] as const) {
    await nameAt(keys, token, NOW + usedAt);
    await nameAt(keys, mintToken(), NOW + 6000);
    expect(await lastUse()).toBe(NOW + recorded);
  }
});

test("createKeyLookup fails with the store's error", async () => {
  const { keys } = openMemory();
  const broken: KeyStore = { ...keys, find: () => Promise.reject(new ServiceError("store_unavailable")) };
  expect((await errorOf(nameAt(broken, mintToken(), NOW))).message).toContain("store_unavailable");
});

test("rotateKey gives every successor the complete lifetime", async () => {
  const { keys } = openMemory();
  const first = await createdKey(keys, "ci", 90 * DAY);
  await createdKey(keys, "another", HOUR);
  const second = await rotated(keys, first.key, HOUR, NOW + 10 * DAY);
  const third = await rotated(keys, first.key, HOUR, NOW + 10 * DAY + 1);
  expect(second.key.expiresAt).toBe(NOW + 100 * DAY);
  expect(third.key.expiresAt).toBe(NOW + 100 * DAY + 1);
  const noExpiry = await createdKey(keys, "no-expiry");
  await rotated(keys, noExpiry.key, 0);
  expect((await rotated(keys, noExpiry.key, 0)).key.expiresAt).toBeUndefined();
});

test("rotateKey gives the successor the scope and the lifetime of the newest key of its name", async () => {
  const { keys } = openMemory();
  const old = await createdKey(keys, "ci", DAY);
  const newest = await createKey(keys, "ci", undefined, NOW + DAY, "read");
  expect(newest?.key.scope).toBe("read");
  const { key, token } = await rotated(keys, old.key, 0, NOW + DAY + 1);
  expect([key.scope, key.expiresAt]).toEqual(["read", undefined]);
  expect(await createKeyLookup(keys, () => NOW + DAY + 2)(token)).toMatchObject({
    name: "ci",
    scope: "read",
  });
});

test("rotateKey creates nothing for an absent key", async () => {
  const { keys } = openMemory();
  const { key } = await createdKey(keys, "ci");
  expect(await rotateKey(keys, "absent", 0, NOW)).toBeUndefined();
  expect(await rotateKey(keys, "ci", 0, NOW)).toBeUndefined();
  await keys.delete(key.id);
  expect(await rotateKey(keys, key.id, 0, NOW)).toBeUndefined();
  expect(await keys.list()).toEqual([]);
});
