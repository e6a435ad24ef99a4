import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { Failure, type FieldError } from "../failure.ts";
import { openMemory } from "../storage/memory.ts";
import {
  createKey,
  formatTime,
  isKeyId,
  type Key,
  type KeyStore,
  lookupKey,
  parseDuration,
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

/** The rules that a call says are broken; none when it gives a value. */
function brokenBy(call: () => unknown): readonly FieldError[] {
  try {
    call();
    return [];
  } catch (error) {
    if (error instanceof Failure && error.code === "validation_failed") return error.errors ?? [];
    throw error;
  }
}

describe("parseKeyName", () => {
  test.each(["a", "ci", " ci ", "Zoë 😀", "a:b", "__proto__", "a\u2028b", "x".repeat(100), "😀".repeat(100)])(
    "takes %j as it is",
    (name) => {
      expect(parseKeyName(name)).toBe(name);
    },
  );

  test.each<[what: string, name: unknown, messages: readonly string[]]>([
    ["nothing", undefined, ["is required"]],
    ["null", null, ["must be a string"]],
    ["a number", 7, ["must be a string"]],
    ["a list", ["ci"], ["must be a string"]],
    ["an empty name", "", ["must not be empty"]],
    ["blanks", " \u00a0\u3000\ufeff", ["must not be empty"]],
    ["101 characters", "x".repeat(101), ["must be at most 100 characters"]],
    ["101 emoji", "😀".repeat(101), ["must be at most 100 characters"]],
    ["a line break", "a\nb", ["must have no control characters"]],
    ["an escape", "\u001b[31mci", ["must have no control characters"]],
    ["a NUL", "a\0", ["must have no control characters"]],
    ["a control character of C1", "a\u0085b", ["must have no control characters"]],
    ["a lone surrogate", "\ud800", ["must be well-formed Unicode, without lone surrogates"]],
    [
      "101 tabs",
      "\t".repeat(101),
      ["must not be empty", "must be at most 100 characters", "must have no control characters"],
    ],
  ])("refuses %s", (_what, name, messages) => {
    expect(brokenBy(() => parseKeyName(name))).toEqual(
      messages.map((message) => ({ field: "name", message })),
    );
  });
});

describe("parseDuration", () => {
  test.each<[text: string, milliseconds: number]>([
    ["0", 0],
    ["0s", 0],
    ["30s", 30 * SECOND],
    ["15m", 15 * 60 * SECOND],
    ["24h", DAY],
    ["90d", 90 * DAY],
    ["2w", 14 * DAY],
    ["007d", 7 * DAY],
    ["36500d", 36_500 * DAY],
    ["876000h", 36_500 * DAY],
  ])("reads %j", (text, milliseconds) => {
    expect(parseDuration("overlap", text)).toBe(milliseconds);
  });

  test("reads every whole number of each unit, up to 36500 days", () => {
    const units: readonly (readonly [unit: string, length: number])[] = [
      ["s", SECOND],
      ["m", 60 * SECOND],
      ["h", HOUR],
      ["d", DAY],
      ["w", 7 * DAY],
    ];
    fc.assert(
      fc.property(fc.nat({ max: 2 ** 31 }), fc.constantFrom(...units), (count, [unit, length]) => {
        const read = () => parseDuration("x", `${count}${unit}`);
        if (count * length <= 36_500 * DAY) expect(read()).toBe(count * length);
        else expect(brokenBy(read)).toEqual([{ field: "x", message: "must be at most 36500d" }]);
      }),
    );
  });

  test.each([
    "",
    " ",
    "1",
    "d",
    "90 d",
    " 90d",
    "90d ",
    "90d\n",
    "+90d",
    "-1d",
    "1.5h",
    "1e3d",
    "0x1d",
    "90D",
    "90days",
    "1d12h",
    "P90D",
    "2026-01-01",
    "never",
    "٣d",
    "1y",
    "1ms",
    "1__proto__",
  ])("refuses %j, and says what is right", (text) => {
    expect(brokenBy(() => parseDuration("expires", text))).toEqual([
      { field: "expires", message: "must be a duration such as 90d, 2w, 24h, 15m, 30s or 0" },
    ]);
  });

  test.each(["36501d", "5215w", "876001h", "3153600001s", `${"9".repeat(400)}d`])(
    "refuses %j, which is too long",
    (text) => {
      expect(brokenBy(() => parseDuration("expires", text))).toEqual([
        { field: "expires", message: "must be at most 36500d" },
      ]);
    },
  );

  test("refuses what is no string", () => {
    for (const value of [undefined, null, 90, true, ["90d"], {}]) {
      expect(brokenBy(() => parseDuration("expires", value))).toEqual([
        { field: "expires", message: "must be a string" },
      ]);
    }
  });
});

describe("parseLifetime", () => {
  test("is none unless one is given", () => {
    expect([parseLifetime(undefined), parseLifetime("1s")]).toEqual([undefined, SECOND]);
  });

  test.each(["0", "0d", "000s"])("refuses %j, of which one might think that it means for ever", (text) => {
    expect(brokenBy(() => parseLifetime(text))).toEqual([
      {
        field: "expires",
        message: "must be longer than 0; leave it out for a key that does not expire",
      },
    ]);
  });
});

test("parseOverlap is 24 hours unless one is given, and may be 0", () => {
  expect([parseOverlap(undefined), parseOverlap("0"), parseOverlap("1h")]).toEqual([DAY, 0, HOUR]);
});

describe("parseNewKey", () => {
  test.each<[what: string, body: unknown, name: string, lifetime: number | undefined]>([
    ["a name", { name: "ci" }, "ci", undefined],
    ["a name and a lifetime", { name: "ci", expires: "90d" }, "ci", 90 * DAY],
    ["other members", { name: "ci", id: "x", token: "t", createdAt: 0 }, "ci", undefined],
  ])("reads %s", (_what, body, name, lifetime) => {
    expect(parseNewKey(body)).toEqual({ name, lifetime });
  });

  test.each<[what: string, body: unknown, fields: readonly string[]]>([
    ["nothing", undefined, ["name"]],
    ["null", null, ["name"]],
    ["a list", ["ci"], ["name"]],
    ["a text", "ci", ["name"]],
    ["a bad name", { name: " " }, ["name"]],
    ["a name that is inherited", Object.create({ name: "ci" }), ["name"]],
    ["a bad lifetime", { name: "ci", expires: "1y" }, ["expires"]],
    ["a lifetime of null", { name: "ci", expires: null }, ["expires"]],
    ["both, all together", { name: "\t", expires: 0 }, ["name", "name", "expires"]],
  ])("refuses %s", (_what, body, fields) => {
    expect(brokenBy(() => parseNewKey(body)).map(({ field }) => field)).toEqual([...fields]);
  });
});

describe("parseRotation", () => {
  test("gives the overlap", () => {
    expect([{}, { overlap: "0" }, { overlap: "2h", x: 1 }].map(parseRotation)).toEqual([DAY, 0, 2 * HOUR]);
  });

  test("refuses what is wrong rather than give the default", () => {
    for (const body of [null, "0", 0, [], [{ overlap: "0" }], { overlap: "soon" }, { overlap: null }]) {
      expect(brokenBy(() => parseRotation(body)).map(({ field }) => field)).toEqual(["overlap"]);
    }
  });
});

test("formatTime is in UTC, to the second", () => {
  expect(formatTime(NOW)).toBe("2026-01-02T03:04:05Z");
  expect(formatTime(NOW + 36_500 * DAY)).toBe("2125-12-09T03:04:05Z");
});

test("isKeyId takes what is minted, and no token", async () => {
  const minted = await createKey(openMemory().keys, "ci", undefined, NOW);
  expect(isKeyId(minted?.key.id ?? "")).toBe(true);
  for (const text of ["", "a", "1234567", "123456789", "1234 678", "1234567\n", mintToken()]) {
    expect([text, isKeyId(text)]).toEqual([text, false]);
  }
});

/** Makes a key that must be made. */
async function made(keys: KeyStore, name: string, lifetime?: number, now = NOW) {
  const minted = await createKey(keys, name, lifetime, now);
  if (minted === undefined) throw new Error(`no key was made for ${name}`);
  return minted;
}

async function rotated(keys: KeyStore, { id }: Key, overlap: number, now = NOW) {
  const minted = await rotateKey(keys, id, overlap, now);
  if (minted === undefined) throw new Error(`${id} was not rotated`);
  return minted;
}

/** Who a token belongs to at a time. */
const nameAt = async (keys: KeyStore, token: string, now: number) =>
  (await lookupKey(keys, () => now)(token))?.name;

describe("createKey", () => {
  test("stores the hash of a token that is shown once", async () => {
    const { keys } = openMemory();
    const { key, token } = await made(keys, "ci", DAY);
    expect(key).toEqual({
      id: expect.any(String),
      name: "ci",
      createdAt: NOW,
      expiresAt: NOW + DAY,
      lifetime: DAY,
    });
    expect(await keys.find(hashToken(token))).toEqual({ ...key, tokenHash: hashToken(token) });
    expect(Object.keys(key)).not.toContain("tokenHash");
    expect(Bun.inspect(keys, { depth: Number.POSITIVE_INFINITY })).not.toContain(token.slice(5, 15));
  });

  test("makes none where one of the name is valid", async () => {
    const { keys } = openMemory();
    await made(keys, "ci", DAY);
    expect(await createKey(keys, "ci", undefined, NOW + DAY - 1)).toBeUndefined();
    await made(keys, "ci", undefined, NOW + DAY);
    await made(keys, "CI");
    expect(await keys.list()).toHaveLength(3);
  });

  test("makes ids and tokens that differ", async () => {
    const { keys } = openMemory();
    const all = await Promise.all(Array.from({ length: 100 }, (_, index) => made(keys, `${index}`)));
    expect(new Set(all.flatMap(({ key, token }) => [key.id, token])).size).toBe(200);
  });
});

describe("lookupKey", () => {
  test("knows a key until it expires", async () => {
    const { keys } = openMemory();
    const { token } = await made(keys, "ci", DAY);
    expect(await nameAt(keys, token, NOW)).toBe("ci");
    expect(await nameAt(keys, token, NOW + DAY - 1)).toBe("ci");
    expect(await nameAt(keys, token, NOW + DAY)).toBeUndefined();
    const lasting = await made(keys, "backup");
    expect(await nameAt(keys, lasting.token, NOW + 36_500 * DAY)).toBe("backup");
  });

  test("knows nothing but the token", async () => {
    const { keys } = openMemory();
    const { key, token } = await made(keys, "ci");
    const hash = hashToken(token);
    for (const other of [
      "",
      "ci",
      key.id,
      token.slice(0, -1),
      `${token}x`,
      hash.toString("hex"),
      hash.toString("latin1"),
    ]) {
      expect(await nameAt(keys, other, NOW)).toBeUndefined();
    }
  });

  test("does not take the store's word for the hash", async () => {
    const { keys } = openMemory();
    const { key, token } = await made(keys, "ci");
    const careless: KeyStore = {
      ...keys,
      find: () => ({ ...key, tokenHash: hashToken(token) }),
      touch: () => {},
    };
    expect(await nameAt(careless, token, NOW)).toBe("ci");
    expect(await nameAt(careless, mintToken(), NOW)).toBeUndefined();
  });

  test("notes each use, and no refusal", async () => {
    const { keys } = openMemory();
    const { token } = await made(keys, "ci", DAY);
    await nameAt(keys, token, NOW + 5);
    await nameAt(keys, token, NOW + DAY);
    await nameAt(keys, mintToken(), NOW + 6);
    expect((await keys.list()).map(({ lastUsedAt }) => lastUsedAt)).toEqual([NOW + 5]);
  });

  test("fails as the store does", async () => {
    const { keys } = openMemory();
    const broken: KeyStore = { ...keys, find: () => Promise.reject(new Failure("store_unavailable")) };
    expect(nameAt(broken, mintToken(), NOW)).rejects.toThrow("store_unavailable");
  });
});

describe("rotateKey", () => {
  test("gives the whole lifetime to the successor of a key that was rotated before", async () => {
    for (const lifetime of [undefined, 90 * DAY]) {
      const { keys } = openMemory();
      const { key } = await made(keys, "ci", lifetime);
      const lost = await rotateKey(keys, key.id, 0, NOW);
      await keys.delete(lost?.key.id ?? "");
      const again = await rotateKey(keys, key.id, 0, NOW + 1);
      expect(again?.key.expiresAt).toBe(lifetime === undefined ? undefined : NOW + 1 + lifetime);
    }
  });

  test("lets both pass for the overlap", async () => {
    const { keys } = openMemory();
    const old = await made(keys, "ci");
    const { token, key } = await rotated(keys, old.key, HOUR, NOW + DAY);
    expect(key).toEqual({ id: expect.any(String), name: "ci", createdAt: NOW + DAY });
    const passing = async (now: number) => [
      await nameAt(keys, old.token, now),
      await nameAt(keys, token, now),
    ];
    expect(await passing(NOW + DAY + HOUR - 1)).toEqual(["ci", "ci"]);
    expect(await passing(NOW + DAY + HOUR)).toEqual([undefined, "ci"]);
  });

  test("lets only the successor pass when there is no overlap", async () => {
    const { keys } = openMemory();
    const old = await made(keys, "ci");
    const { token } = await rotated(keys, old.key, 0);
    expect(await nameAt(keys, old.token, NOW)).toBeUndefined();
    expect(await nameAt(keys, token, NOW)).toBe("ci");
  });

  test("does not make a key last longer than it would", async () => {
    const { keys } = openMemory();
    const old = await made(keys, "ci", HOUR);
    await rotated(keys, old.key, DAY);
    expect(await nameAt(keys, old.token, NOW + HOUR)).toBeUndefined();
  });

  test("gives the successor the whole lifetime, however often and whichever is rotated", async () => {
    const { keys } = openMemory();
    const first = await made(keys, "ci", 90 * DAY);
    await made(keys, "another", HOUR);
    const second = await rotated(keys, first.key, HOUR, NOW + 10 * DAY);
    const third = await rotated(keys, first.key, HOUR, NOW + 10 * DAY + 1);
    expect(second.key.expiresAt).toBe(NOW + 100 * DAY);
    expect(third.key.expiresAt).toBe(NOW + 100 * DAY + 1);
    const forEver = await made(keys, "for ever");
    await rotated(keys, forEver.key, 0);
    expect((await rotated(keys, forEver.key, 0)).key.expiresAt).toBeUndefined();
  });

  test("gives the successor the lifetime of the newest of its name", async () => {
    const { keys } = openMemory();
    await made(keys, "ci", DAY);
    const { key } = await made(keys, "ci", undefined, NOW + DAY);
    expect((await rotated(keys, key, 0, NOW + DAY + 1)).key.expiresAt).toBeUndefined();
  });

  test("ends what was valid beside the key too, so that a lost successor does not stay", async () => {
    const { keys } = openMemory();
    const old = await made(keys, "ci");
    const lost = await rotated(keys, old.key, DAY);
    const { token } = await rotated(keys, old.key, HOUR);
    const tokens = [old.token, lost.token, token];
    const passing = async (now: number) => Promise.all(tokens.map((one) => nameAt(keys, one, now)));
    expect(await passing(NOW + HOUR - 1)).toEqual(["ci", "ci", "ci"]);
    expect(await passing(NOW + HOUR)).toEqual([undefined, undefined, "ci"]);
  });

  test("revives a client whose key has expired", async () => {
    const { keys } = openMemory();
    const old = await made(keys, "ci", HOUR);
    const { token } = await rotated(keys, old.key, DAY, NOW + 2 * HOUR);
    expect(await nameAt(keys, old.token, NOW + 2 * HOUR)).toBeUndefined();
    expect(await nameAt(keys, token, NOW + 3 * HOUR - 1)).toBe("ci");
  });

  test("knows no absent key, and makes none then", async () => {
    const { keys } = openMemory();
    const { key } = await made(keys, "ci");
    expect(await rotateKey(keys, "absent", 0, NOW)).toBeUndefined();
    expect(await rotateKey(keys, "ci", 0, NOW)).toBeUndefined();
    await keys.delete(key.id);
    expect(await rotateKey(keys, key.id, 0, NOW)).toBeUndefined();
    expect(await keys.list()).toEqual([]);
  });
});
