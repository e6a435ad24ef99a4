import { afterAll, describe, expect, test } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { errorOf } from "../../../../test/rejection.ts";
import { openSqlite } from "../store.ts";
import { exportTodos } from "./transfer.ts";

const folder = mkdtempSync(join(tmpdir(), "todo-export-"));
afterAll(() => rmSync(folder, { recursive: true }));
let files = 0;

/** Too many for one piece of an export. */
const MANY = 1000;

/** Creates a store with many to-dos and one API key. */
async function makeStore(): Promise<string> {
  const path = join(folder, `${++files}.db`);
  const store = await openSqlite(path);
  await Promise.all(Array.from({ length: MANY }, () => store.insert("x".repeat(120))));
  await store.keys.insert({
    id: "k1",
    name: "alice",
    tokenHash: new Uint8Array(32).fill(7),
    scope: "read",
    createdAt: 1,
  });
  await store.close();
  return path;
}

describe("exportTodos", () => {
  test("returns what it has written", async () => {
    const path = await makeStore();
    for (const keys of ["include", "omit"] as const) {
      let text = "";
      const summary = await exportTodos(
        path,
        async (piece) => {
          text += piece;
        },
        {
          signal: new AbortController().signal,
          keys,
        },
      );
      expect(summary).toEqual({
        todos: MANY,
        lastId: BigInt(MANY),
        keys: keys === "include" ? 1 : undefined,
      });
      expect(text.includes('"name":"alice"')).toBe(keys === "include");
    }
  });

  test("rejects with the reason when aborted, and writes nothing more", async () => {
    const path = await makeStore();
    const controller = new AbortController();
    const reason = new Error("enough");
    let writes = 0;
    const write = async (): Promise<void> => {
      writes++;
      controller.abort(reason);
    };
    const aborted = exportTodos(path, write, { signal: controller.signal });
    expect(await errorOf(aborted)).toBe(reason);
    expect(writes).toBe(1);
  });
});
