import { Database } from "bun:sqlite";
import { describe, expect, test } from "bun:test";
import { globSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { errorOf } from "../../../../test/rejection.ts";
import { temporaryFolder } from "../../../../test/temporary.ts";
import { openSqlite } from "../store.ts";
import { exportTodos } from "./transfer.ts";

const folder = temporaryFolder();
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

  test("reads a private copy, so that its reader does not let the WAL of a server grow", async () => {
    const path = await makeStore();
    const store = await openSqlite(path);
    const modes: number[] = [];
    let titles = 0;
    const write = async (text: string): Promise<void> => {
      titles += text.split('"title"').length - 1;
      if (modes.length > 0) return;
      modes.push(...exportCopies(path).map((copy) => statSync(copy).mode & 0o777));
      // Without a reader, a checkpoint of the server can empty the WAL.
      const database = new Database(path);
      const checkpoint = database.query<{ busy: number }, []>("PRAGMA wal_checkpoint(TRUNCATE)").get();
      database.close();
      expect(checkpoint?.busy).toBe(0);
    };
    await exportTodos(path, write, { signal: new AbortController().signal });
    expect({ modes, titles }).toEqual({ modes: [0o600], titles: MANY });
    expect(exportCopies(path)).toEqual([]);
    await store.close();
  });

  test("leaves no copy when it fails, and the server removes what a killed export has left", async () => {
    const path = await makeStore();
    const store = await openSqlite(path);
    const reason = new Error("no reader");
    let used: string | undefined;
    const write = async (): Promise<void> => {
      const [copy = ""] = exportCopies(path);
      writeFileSync(`${path}.copy-0123456789abcdef`, "");
      await store.close();
      await (await openSqlite(path)).close();
      used = copy;
      expect(exportCopies(path)).toEqual([copy]);
      throw reason;
    };
    expect(await errorOf(exportTodos(path, write, { signal: new AbortController().signal }))).toBe(reason);
    expect(used).toBeDefined();
    expect(exportCopies(path)).toEqual([]);
  });
});

const exportCopies = (path: string): string[] => globSync(`${path}.copy-*`);
