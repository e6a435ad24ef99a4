import { describe, expect, test } from "bun:test";
import { join } from "node:path";
import { callTodo } from "../../../test/call-todo.ts";
import { openDatabases, whyNoDatabase } from "../../../test/postgres.ts";
import { skipFor } from "../../../test/skip.ts";
import { temporaryFolder } from "../../../test/temporary.ts";
import { openSqlite } from "../../storage/sqlite/store.ts";

const folder = temporaryFolder();

const migrate = (store: string) => callTodo(["migrate"], { TODO_STORE: store });

const migrated = (stdout: RegExp) => ({ code: 0, stdout: expect.stringMatching(stdout), stderr: "" });

describe("todo migrate", () => {
  test("reports that the schema of a SQLite file is current", async () => {
    const path = join(folder, "current.db");
    await (await openSqlite(path)).close();
    expect(await migrate(`sqlite:${path}`)).toEqual(migrated(/^the schema is current \(format 3\)\n$/));
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
