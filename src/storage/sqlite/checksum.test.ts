import { expect, test } from "bun:test";
import fc from "fast-check";
import type { StoredKey } from "../../credential/key.ts";
import { encodeTodo } from "../../todo.ts";
import { Checksum, type Counters, countersText, keyText } from "./checksum.ts";

function checksumOf(rows: readonly string[]): Checksum {
  const checksum = new Checksum();
  for (const row of rows) checksum.add(row);
  return checksum;
}

const KEY: StoredKey = {
  id: "k",
  name: "alice",
  tokenHash: new Uint8Array(32).fill(7),
  scope: "write",
  createdAt: 1,
};
const COUNTERS: Counters = { id: "s", epoch: "e", last_id: 2n, sequence: 3n, transactions: 4n };

test("the checksum is two unsigned 32-bit numbers that do not depend on the order of the rows", () => {
  fc.assert(
    fc.property(fc.array(fc.string({ unit: "binary" })), (rows) => {
      const checksum = checksumOf(rows);
      expect(checksumOf(rows.toReversed())).toEqual(checksum);
      for (const sum of [checksum.first, checksum.second]) expect(sum).toBeWithin(0, 2 ** 32);
      for (const sum of [checksum.first, checksum.second]) expect(Number.isInteger(sum)).toBe(true);
    }),
  );
});

test("the checksum continues from a stored value and forgets a subtracted row", () => {
  fc.assert(
    fc.property(fc.array(fc.string()), fc.string(), (rows, row) => {
      const { first, second } = checksumOf(rows);
      const checksum = new Checksum(first, second);
      checksum.add(row);
      expect(checksum).toEqual(checksumOf([...rows, row]));
      checksum.subtract(row);
      expect(checksum.equals(checksumOf(rows))).toBe(true);
    }),
  );
});

test("the checksum changes when two to-dos exchange their titles, states or ids", () => {
  const one = { id: 1n, title: "a", done: false };
  const two = { id: 2n, title: "b", done: true };
  const rowsOf = (...todos: (typeof one)[]) => checksumOf(todos.map(encodeTodo));
  const checksums = [
    rowsOf(one, two),
    rowsOf({ ...one, title: "b" }, { ...two, title: "a" }),
    rowsOf({ ...one, done: true }, { ...two, done: false }),
    rowsOf({ ...one, id: 2n }, { ...two, id: 1n }),
    rowsOf(one),
  ];
  expect(new Set(checksums.map(({ first }) => first)).size).toBe(checksums.length);
  expect(new Set(checksums.map(({ second }) => second)).size).toBe(checksums.length);
});

test.each<[what: string, change: Partial<StoredKey>]>([
  ["id", { id: "l" }],
  ["name", { name: "bob" }],
  ["token hash", { tokenHash: new Uint8Array(32).fill(6) }],
  ["scope", { scope: "read" }],
  ["creation time", { createdAt: 2 }],
  ["expiry time", { expiresAt: 1 }],
  ["lifetime", { lifetime: 1 }],
])("the text of an API key contains its %s", (_what, change) => {
  expect(keyText({ ...KEY, ...change })).not.toBe(keyText(KEY));
});

test("the text of an API key does not contain its last use", () => {
  expect(keyText({ ...KEY, lastUsedAt: 5 })).toBe(keyText(KEY));
});

test.each([
  ["id", { id: "t" }],
  ["epoch", { epoch: "f" }],
  ["last id", { last_id: 3n }],
  ["sequence number", { sequence: 4n }],
  ["number of transactions", { transactions: 5n }],
])("the text of the counters contains the %s", (_what, change) => {
  expect(countersText({ ...COUNTERS, ...change })).not.toBe(countersText(COUNTERS));
});
