import { Database } from "bun:sqlite";
import { afterAll, describe, expect, test } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { runTodo } from "../../test/command.ts";
import { openDatabases, whyNoDatabase } from "../../test/postgres.ts";
import { skipFor } from "../../test/skip.ts";

const folder = mkdtempSync(join(tmpdir(), "todo-migrate-"));
afterAll(() => rmSync(folder, { recursive: true }));

async function migrate(store: string) {
  await using command = runTodo(["migrate"], { TODO_STORE: store });
  return { code: await command.exited, stdout: command.stdout(), stderr: command.stderr() };
}

const migrated = (stdout: RegExp) => ({ code: 0, stdout: expect.stringMatching(stdout), stderr: "" });

describe("todo migrate", () => {
  test("updates the schema of a SQLite file", async () => {
    const path = join(folder, "old.db");
    const old = new Database(path);
    old.run("CREATE TABLE todos (id INTEGER PRIMARY KEY, title TEXT NOT NULL, done INTEGER NOT NULL) STRICT");
    old.run(
      "CREATE TABLE events (n INTEGER PRIMARY KEY, type TEXT NOT NULL, id INTEGER NOT NULL, json TEXT) STRICT",
    );
    old.run("CREATE TABLE store (epoch TEXT NOT NULL, last_id INTEGER NOT NULL, n INTEGER NOT NULL) STRICT");
    old.run("INSERT INTO store VALUES ('0123456789abcdef', 0, 0)");
    old.run("PRAGMA user_version = 1");
    old.close();
    expect(await migrate(`sqlite:${path}`)).toEqual(migrated(/^migrated the schema from format 1 to \d+\n$/));
    expect(await migrate(`sqlite:${path}`)).toEqual(migrated(/^the schema is current \(format \d+\)\n$/));
  });

  test("rejects an empty file, and leaves it empty", async () => {
    const path = join(folder, "empty.db");
    await Bun.write(path, "");
    expect(await migrate(`sqlite:${path}`)).toEqual({
      code: 2,
      stdout: "",
      stderr: `todo: ${path}: it is empty: check the path of the store, or restore a backup with todo restore\n`,
    });
    expect(await Bun.file(path).text()).toBe("");
  });

  test("rejects a missing file and a store in memory", async () => {
    const missing = await migrate(`sqlite:${join(folder, "missing.db")}`);
    expect([missing.code, missing.stderr]).toEqual([2, expect.stringContaining("missing.db does not exist")]);
    expect((await migrate("memory:")).code).toBe(2);
  });

  test.skipIf(skipFor(whyNoDatabase))("creates and updates the schema of a PostgreSQL database", async () => {
    await using databases = await openDatabases();
    const url = await databases.newDatabase();
    expect(await migrate(url)).toEqual(migrated(/^migrated the schema from format 0 to \d+\n$/));
    expect(await migrate(url)).toEqual(migrated(/^the schema is current \(format \d+\)\n$/));
  });
});
