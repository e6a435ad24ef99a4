import { describe, expect, test } from "bun:test";
import { parseMadeWith } from "../storage/records/key-row.ts";
import { MAX_EXPIRED_KEYS, type StoredKey } from "./key.ts";
import { decide, type KeyChange } from "./key-rules.ts";

/** Returns the key of a text such as `a=ci:100<key:p`: the id, and optionally a name, the expiry, and what it was made with. */
function key(text: string, more: Partial<StoredKey> = {}): StoredKey {
  const [, id = "", name = id, expiry, made] = /^([\w-]+)(?:=(\w+))?(?::(\d+))?(?:<(.+))?$/.exec(text) ?? [];
  return {
    ...({ id, name, tokenHash: new Uint8Array(), scope: "write", createdAt: 0 } as const),
    ...(expiry !== undefined && { expiresAt: Number(expiry) }),
    ...(made !== undefined && parseMadeWith(made)),
    ...more,
  };
}

const keysIn = (text: string): StoredKey[] => text.split(" ").map((one) => key(one));
const insert = (text: string, createdAt = 0) => ({ type: "insert", key: key(text, { createdAt }) }) as const;
const replace = (id: string, expiresAt: number, text: string, createdAt = 0) =>
  ({ type: "replace", id, expiresAt, successor: key(text, { createdAt }) }) as const;
const remove = (id: string) => ({ type: "delete", id }) as const;
const rename = (id: string, name: string) => ({ type: "rename", id, name }) as const;

/** Returns the ids of all keys after a change, and when they expire; "nothing" if nothing changes. */
function after(keys: readonly StoredKey[], change: KeyChange, clock?: number): string {
  const all = new Map(keys.map((one) => [one.id, one]));
  const difference = decide(all, change, clock);
  if (difference === undefined) return "nothing";
  for (const id of difference.remove) all.delete(id);
  for (const one of difference.put) all.set(one.id, one);
  return [...all.values()]
    .map(({ id, expiresAt: end }) => (end === undefined ? id : `${id}:${end}`))
    .join(" ");
}

const made = (id: string) =>
  `${id} ${id}-link:90<code:key:${id} ${id}-tab:30<key:${id} ${id}-tab2<code:key:${id}-tab`;
const FAMILIES = `user:90<user:x:x ${made("x")} ${made("xx")}`;
const XX = "xx xx-link:90 xx-tab:30 xx-tab2";

test.each<[rule: string, keys: string, change: KeyChange, left: string]>([
  ["a valid key has its name alone", "a=ci:100", insert("b=ci", 99), "nothing"],
  ["names differ by case", "a=ci:100", insert("b=CI", 99), "a:100 b"],
  ["an expired key frees its name", "a=ci:100", insert("b=ci", 100), "a:100 b"],
  ["a key without expiry stays valid", "a=ci", insert("b=ci", 1e12), "nothing"],
  ["one valid key of a name suffices", "a=ci:0 b=ci", insert("c=ci", 10), "nothing"],
  ["replace ends all keys of the name", "a=ci x b=ci:50", replace("a", 20, "c=ci"), "a:20 x b:20 c"],
  ["replace keeps an earlier expiry", "a=ci:20 b=ci:40", replace("b", 30, "c=ci"), "a:20 b:30 c"],
  ["replace keeps another's key", "a=ci b=ci<user:x:ann", replace("a", 20, "c=ci"), "a:20 b c"],
  ["replace needs its key", "a", replace("b", 0, "c"), "nothing"],
  [
    "replace ends what was made with the key",
    FAMILIES,
    replace("x", 50, "d"),
    `user:90 x:50 x-link:50 x-tab:30 x-tab2:50 ${XX} d`,
  ],
  ["delete ends what was made with the key", FAMILIES, remove("x"), `user:90 ${XX}`],
  ["delete keeps parents and siblings", FAMILIES, remove("x-tab"), `user:90 x x-link:90 ${XX}`],
  ["delete needs its key", FAMILIES, remove("absent"), "nothing"],
  ["a parent must exist", "a", insert("b<key:absent"), "nothing"],
  ["a parent must be valid", "a:5", insert("b<key:a", 5), "nothing"],
  ["a key ends with its parent", "a:50", insert("b:90<key:a"), "a:50 b:50"],
  ["a key may end before its parent", "a:50", insert("b:40<key:a"), "a:50 b:40"],
  ["a key without expiry ends with its parent", "a:50", insert("b<code:key:a"), "a:50 b:50"],
  ["rename ignores the names of others", "a<user:x:ann b", rename("a", "b"), "a b"],
  ["rename accepts the same name", "a<user:x:ann", rename("a", "a"), "a"],
  ["rename rejects the name of a sibling", "a<user:x:ann b<user:x:ann", rename("a", "b"), "nothing"],
  ["rename needs its key", "a", rename("absent", "d"), "nothing"],
  ["a clock that is ahead deletes no key", "a:10", insert("b", 1e13), "a:10 b"],
])("%s", (_rule, keys, change, left) => {
  expect(after(keysIn(keys), change)).toBe(left);
});

test("a key has expired only if it has by the clock of the store, too", () => {
  const outcomes = (change: KeyChange) => [99, 100].map((clock) => after([key("a=ci:100")], change, clock));
  expect(outcomes(insert("b=ci", 200))).toEqual(["nothing", "a:100 b"]);
  expect(outcomes(insert("b<key:a", 200))).toEqual(["a:100 b:100", "nothing"]);
});

test("names are taken only among keys of the same kind and parent", () => {
  const keys = keysIn("0=a 1=a<user:x:a 2=a<user:y:a 3=a<user::a 4=a<client:x:a 5=a<code:user:x:a");
  for (const [i, one] of keys.entries()) {
    expect(after(keys.toSpliced(i, 1), { type: "insert", key: one })).not.toBe("nothing");
    expect(after(keys, { type: "insert", key: { ...one, id: "again" } })).toBe("nothing");
  }
});

describe.each([
  ["browser", 20, "user:x:ann"],
  ["link", 5, "code:user:x:ann"],
])("a %s too many", (_what, max, made) => {
  const ids = Array.from({ length: max }, (_, i) => `k${i}`);
  const siblings = ids.map((id, i) => key(`${id}<${made}`, { createdAt: max - i }));
  const without = (index: number) => [...ids.toSpliced(index, 1), "new"].join(" ");

  test("deletes the oldest one and what was made with it, however old the new one is", () => {
    const child = key(`child<code:key:${ids.at(-1)}`);
    expect(after([...siblings, child], insert(`new<${made}`))).toBe(without(max - 1));
  });

  test("deletes an expired one first", () => {
    const all = siblings.with(3, key(`k3:100<${made}`, { createdAt: 99 }));
    expect(after(all, insert(`new<${made}`, 100))).toBe(without(3));
  });

  test("takes the place and the name of the former key", () => {
    const change = insert(`new=k3<${made}`);
    expect(after(siblings, { ...change, ended: { former: "k3" } })).toBe(without(3));
    expect(after(siblings, { ...change, ended: { former: "absent" } })).toBe("nothing");
  });
});

test("a link ends when it is used, and needs to exist", () => {
  const change = { ...insert("new<user:x:ann"), ended: { link: "link" } };
  expect(after(keysIn("link<code:user:x:ann other"), change)).toBe("other new");
  expect(after(keysIn("other"), change)).toBe("nothing");
});

test.each([insert("new", 9000), replace("5", 9000, "new", 9000)])(
  "a new key deletes the expired keys that exceed the limit: %j",
  (change) => {
    const keys = Array.from({ length: MAX_EXPIRED_KEYS + 1 }, (_, i) => key(`${i}:${i}`));
    const left = after(keys, change).split(" ");
    expect([left.length, left[0], left.at(-1)]).toEqual([MAX_EXPIRED_KEYS + 1, "1:1", "new"]);
  },
);

test("a use keeps the latest time, and renews a browser up to the end of its parent", () => {
  const uses = new Map(
    ["program", "user", "short", "long", "fixed", "later", "absent"].map((id) => [id, 20]),
  );
  const keys = [
    ...[key("program:30", { lifetime: 30 }), key("parent:70"), key("user:30<user:x:ann", { lifetime: 30 })],
    ...[key("short:30<key:parent", { lifetime: 30 }), key("long:60<key:parent", { lifetime: 60 })],
    ...[key("fixed:30<user::ann"), key("later:60<user:x:ann", { lifetime: 30, lastUsedAt: 30 })],
  ];
  const { put = [] } = decide(new Map(keys.map((one) => [one.id, one])), { type: "recordUses", uses }) ?? {};
  expect(put.map(({ id, expiresAt, lastUsedAt }) => `${id}:${expiresAt} ${lastUsedAt}`)).toEqual([
    ...["program:30 20", "user:50 20", "short:50 20", "long:70 20", "fixed:30 20", "later:60 30"],
  ]);
  expect(after(keys, { type: "recordUses", uses: new Map([["absent", 20]]) })).toBe("nothing");
});
