import { Database } from "bun:sqlite";
import { expect, test } from "bun:test";
import { statSync } from "node:fs";
import { join } from "node:path";
import { temporaryFolder } from "../../../test/temporary.ts";
import { until } from "../../../test/until.ts";
import { WAL_SIZE_LIMIT } from "./files.ts";
import { openSqlite } from "./store.ts";

const folder = temporaryFolder();

test("the WAL shrinks with the next write after a long read has ended", async () => {
  const path = join(folder, "todos.db");
  const walSize = () => statSync(`${path}-wal`).size;
  const store = await openSqlite(path);
  await store.insert("first");
  const reader = new Database(path);
  reader.run("BEGIN");
  reader.query("SELECT * FROM todos").all();
  while (walSize() < 2 * WAL_SIZE_LIMIT) {
    await Promise.all(Array.from({ length: 5000 }, () => store.insert("x".repeat(120))));
  }
  reader.close();
  await until(async () => {
    await store.insert("last");
    return walSize() <= WAL_SIZE_LIMIT;
  }, "the WAL is short");
  const next = new Database(path);
  next.run("BEGIN");
  next.query("SELECT * FROM todos LIMIT 1").all();
  expect((await store.setDone(1n, true)).json).toContain('"done":true');
  next.close();
  const { count } = store;
  await store.close();
  const again = await openSqlite(path);
  expect(again.count).toBe(count);
  await again.close();
});
