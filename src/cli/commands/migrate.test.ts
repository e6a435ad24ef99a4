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

  test.skipIf(skipFor(whyNoDatabase))("creates and updates the schema of a PostgreSQL database", async () => {
    await using databases = await openDatabases();
    const url = await databases.newDatabase();
    expect(await migrate(url)).toEqual(migrated(/^migrated the schema from format 0 to \d+\n$/));
    expect(await migrate(url)).toEqual(migrated(/^the schema is current \(format \d+\)\n$/));
  });
});
