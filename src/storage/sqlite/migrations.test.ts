import { Database } from "bun:sqlite";
import { expect, test } from "bun:test";
import { assertKnownFormat, MIGRATIONS, migrate } from "./migrations.ts";

test("migrate applies the migrations that a file lacks, and keeps its contents", () => {
  using database = new Database(":memory:");
  migrate(database);
  database.run(`INSERT INTO todos VALUES (1, 'a')`);
  const epoch = database.query("SELECT epoch FROM store").values();
  const later = [...MIGRATIONS, "ALTER TABLE todos ADD COLUMN note TEXT", "UPDATE todos SET note = 'b'"];
  for (let start = 0; start < 2; start++) migrate(database, later);
  expect(database.query("SELECT * FROM todos").values()).toEqual([[1, "a", "b"]]);
  expect(database.query("SELECT epoch FROM store").values()).toEqual(epoch);
  expect(assertKnownFormat(database, later)).toBe(MIGRATIONS.length + 2);
  expect(() => migrate(database)).toThrow("it was written by a newer version of this program (format 3;");
});

test("a migration that fails leaves the file as it was", () => {
  using database = new Database(":memory:");
  migrate(database);
  const failing = [...MIGRATIONS, "ALTER TABLE todos ADD COLUMN note TEXT", "INSERT INTO absent VALUES (1)"];
  expect(() => migrate(database, failing)).toThrow("absent");
  expect(assertKnownFormat(database)).toBe(MIGRATIONS.length);
  expect(database.query("SELECT * FROM todos").columnNames).toEqual(["id", "json"]);
});
