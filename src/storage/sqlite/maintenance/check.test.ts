import { expect, test } from "bun:test";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { temporaryFolder } from "../../../../test/temporary.ts";
import { openSqlite } from "../store.ts";
import { check } from "./check.ts";

const folder = temporaryFolder();

/** Creates a store with API keys, some of which are missing from the index of their table. */
async function makeStore(path: string, damaged: number): Promise<void> {
  const store = await openSqlite(path);
  const hashes = [1, 2, 3].map((byte) => new Uint8Array(32).fill(byte));
  for (const tokenHash of hashes) {
    const id = `k${tokenHash[0]}`;
    await store.keys.insert({ id, name: id, tokenHash, scope: "read", createdAt: 1 });
  }
  await store.close();
  const bytes = readFileSync(path);
  // The table comes before its indexes.
  for (const hash of hashes.slice(0, damaged)) bytes.fill(0xee, bytes.indexOf(hash), bytes.indexOf(hash) + 1);
  writeFileSync(path, bytes);
}

test.each([
  ["no damage", 0, /^ok$/],
  ["one problem", 1, /^row 1 missing from index \w+$/],
  ["two problems", 2, /^row 1 missing from index \w+ \(and 1 more\)$/],
  ["three problems", 3, /^row 1 missing from index \w+ \(and 2 more\)$/],
])(
  "check of a structure with %s names the first problem and counts the others",
  async (_what, damaged, detail) => {
    const path = join(folder, `${damaged}.db`);
    await makeStore(path, damaged);
    const results = await check(path);
    expect(results.find(({ name }) => name === "structure")).toEqual({
      name: "structure",
      isSound: damaged === 0,
      detail: expect.stringMatching(detail),
    });
  },
);
