import { afterAll, beforeAll, expect, test } from "bun:test";
import { join } from "node:path";
import fc from "fast-check";
import type { Awaitable } from "../src/awaitable.ts";
import type { Parent } from "../src/credential/client.ts";
import type { KeyStore, StoredKey } from "../src/credential/key.ts";
import { hashToken } from "../src/credential/token.ts";
import { openMemory } from "../src/storage/memory/store.ts";
import { openPostgresKeys } from "../src/storage/postgres/keys.ts";
import { openSqliteKeys } from "../src/storage/sqlite/keys.ts";
import type { KeyStoreHandle } from "../src/storage/store.ts";
import { type Databases, openDatabases, whyNoDatabase } from "./postgres.ts";
import { executeSql } from "./postgres-store.ts";
import { skipFor } from "./skip.ts";
import { temporaryFolder } from "./temporary.ts";

const hasDatabase = !skipFor(whyNoDatabase);
const SEQUENCES = Number(process.env.TODO_TEST_SEQUENCES ?? 20);
const folder = temporaryFolder();
let databases: Databases | undefined;
beforeAll(async () => {
  if (hasDatabase) databases = await openDatabases();
});
afterAll(() => databases?.[Symbol.asyncDispose]());

/** Numbers choose among the keys that exist. */
type Step =
  | {
      readonly name: "insert";
      readonly parent: number | "user" | "client" | undefined;
      readonly isLink: boolean;
      readonly usedLink: number | undefined;
      readonly former: number | undefined;
      readonly keyName: string;
      readonly expiresIn: number | undefined;
      readonly hasLifetime: boolean;
    }
  | { readonly name: "replace"; readonly key: number; readonly expiresIn: number; readonly keyName: string }
  | { readonly name: "delete"; readonly key: number }
  | { readonly name: "rename"; readonly key: number; readonly keyName: string }
  | { readonly name: "use"; readonly key: number };

const KEY = fc.nat({ max: 12 });
const NAME = fc.constantFrom("a", "b", "c");
const SOON = fc.integer({ min: -1, max: 12 });
const STEP: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 8,
    arbitrary: fc.record({
      name: fc.constant("insert"),
      parent: fc.oneof(fc.constant(undefined), KEY, fc.constantFrom("user", "client")),
      isLink: fc.boolean(),
      usedLink: fc.option(KEY, { nil: undefined, freq: 8 }),
      former: fc.option(KEY, { nil: undefined, freq: 4 }),
      keyName: fc.oneof(NAME, fc.uuid()),
      expiresIn: fc.option(SOON, { nil: undefined }),
      hasLifetime: fc.boolean(),
    }),
  },
  {
    weight: 1,
    arbitrary: fc.record({ name: fc.constant("replace"), key: KEY, expiresIn: SOON, keyName: NAME }),
  },
  { weight: 1, arbitrary: fc.record({ name: fc.constant("delete"), key: KEY }) },
  { weight: 1, arbitrary: fc.record({ name: fc.constant("rename"), key: KEY, keyName: NAME }) },
  { weight: 2, arbitrary: fc.record({ name: fc.constant("use"), key: KEY }) },
);

/** The sequences start at time 0. */
const EXPIRED_BEFORE_1970: Step = {
  ...{ name: "insert", parent: undefined, isLink: false, usedLink: undefined, former: undefined },
  ...{ keyName: "a", expiresIn: -1, hasLifetime: false },
};

test(`${SEQUENCES} sequences of changes of API keys have the same outcome in every store`, async () => {
  const url = await databases?.newDatabase();
  let files = 0;
  const property = fc.asyncProperty(fc.array(STEP, { maxLength: 60, size: "max" }), async (steps) => {
    const path = join(folder, `${files++}.db`);
    const openers: (() => Awaitable<KeyStoreHandle>)[] = [
      () => openSqliteKeys(path, { createIfMissing: true }),
      ...(url === undefined ? [] : [() => openPostgresKeys(url)]),
    ];
    const memory = openMemory().keys;
    const others = await Promise.all(openers.map((open) => open()));
    if (url !== undefined) await executeSql(url, "DELETE FROM todo_service.keys");
    for (const [time, step] of steps.entries()) {
      const all = await memory.list();
      const outcome = await run(memory, step, all, time);
      for (const [index, open] of openers.entries()) {
        const other = others[index];
        if (other === undefined) continue;
        expect(await run(other.keys, step, all, time)).toBe(outcome);
        if (step.name === "use") {
          // The use is then written.
          await other.close();
          others[index] = await open();
        }
      }
      const expected = await memory.list();
      for (const { keys } of others) expect(await keys.list()).toEqual(expected);
    }
    for (const other of others) await other.close();
  });
  await fc.assert(property, { numRuns: SEQUENCES, examples: [[[EXPIRED_BEFORE_1970]]] });
}, 120_000);

async function run(
  keys: KeyStore,
  step: Step,
  all: Awaited<ReturnType<KeyStore["list"]>>,
  time: number,
): Promise<boolean> {
  const at = (index: number) => (all.length === 0 ? undefined : all[index % all.length]);
  if (step.name === "insert") {
    const idOf = (index: number | undefined) =>
      index === undefined ? undefined : (at(index)?.id ?? "absent");
    const ended = { link: idOf(step.usedLink), former: idOf(step.former) };
    return keys.insert(newKey(step, all, time), ended);
  }
  const { id, parent } = at(step.key) ?? { id: "absent" };
  if (step.name === "delete") return keys.delete(id);
  if (step.name === "rename") return keys.rename(id, step.keyName);
  if (step.name === "use") {
    keys.recordUse(id, time);
    return true;
  }
  // Only keys of clients are replaced.
  if (parent !== undefined) return false;
  const name = at(step.key)?.name ?? step.keyName;
  return keys.replace(id, time + step.expiresIn, stored(`${time}`, name, time));
}

const stored = (id: string, name: string, createdAt: number): StoredKey => ({
  ...{ id, name, createdAt },
  tokenHash: hashToken(id),
  scope: "write",
});

function newKey(
  { parent, isLink, keyName, expiresIn, hasLifetime }: Extract<Step, { name: "insert" }>,
  all: Awaited<ReturnType<KeyStore["list"]>>,
  time: number,
): StoredKey {
  const key = {
    ...stored(`${time}`, keyName, time),
    ...(expiresIn !== undefined && { expiresAt: time + expiresIn }),
    ...(hasLifetime && { lifetime: 10 }),
  };
  if (parent === undefined) return key;
  // A link makes no keys, and a browser only links.
  const makers = all.filter(({ kind }) => kind === undefined || (kind === "device" && isLink));
  const id = typeof parent === "number" ? (makers[parent % makers.length]?.id ?? "absent") : undefined;
  const made: Parent =
    typeof parent === "number" ? { kind: "key", id: id ?? "" } : { kind: parent, name: "ann", entryHash: "" };
  return { ...key, kind: isLink ? "link" : "device", parent: made };
}
