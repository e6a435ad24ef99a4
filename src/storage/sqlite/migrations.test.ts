import { Database } from "bun:sqlite";
import { expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { eachEvent } from "../../../test/store.ts";
import { temporaryFolder } from "../../../test/temporary.ts";
import { hashToken } from "../../credential/token.ts";
import { encodeTodo } from "../../todo.ts";
import { sha256 } from "../records/idempotency.ts";
import { madeWithText } from "../records/key-row.ts";
import { storeChecksum } from "./contents.ts";
import { check } from "./maintenance/check.ts";
import { assertKnownFormat, MIGRATIONS, migrate } from "./migrations.ts";
import { openSqlite } from "./store.ts";

const folder = temporaryFolder();

const NOW = Date.UTC(2026, 0, 2);

const sql = (text: string) => (database: Database) => void database.run(text);

test("migrate applies the migrations that a file lacks, and keeps its contents", () => {
  using database = new Database(":memory:");
  migrate(database);
  database.run(`INSERT INTO todos VALUES (1, 'a')`);
  const epoch = database.query("SELECT epoch FROM store").values();
  const later = [
    ...MIGRATIONS,
    sql("ALTER TABLE todos ADD COLUMN note TEXT"),
    sql("UPDATE todos SET note = 'b'"),
  ];
  for (let start = 0; start < 2; start++) migrate(database, later);
  expect(database.query("SELECT * FROM todos").values()).toEqual([[1, "a", "b"]]);
  expect(database.query("SELECT epoch FROM store").values()).toEqual(epoch);
  expect(assertKnownFormat(database, later)).toBe(MIGRATIONS.length + 2);
  expect(() => migrate(database)).toThrow("it was written by a newer version of this program (format 4;");
});

test("a migration that fails leaves the file as it was", () => {
  using database = new Database(":memory:");
  migrate(database);
  const failing = [
    ...MIGRATIONS,
    sql("ALTER TABLE todos ADD COLUMN note TEXT"),
    sql("INSERT INTO absent VALUES (1)"),
  ];
  expect(() => migrate(database, failing)).toThrow("absent");
  expect(assertKnownFormat(database)).toBe(MIGRATIONS.length);
  expect(database.query("SELECT * FROM todos").columnNames).toEqual(["id", "json"]);
});

test("a store of format 1 keeps its API keys, events and idempotency keys, and its checksum", async () => {
  const path = join(folder, "format-1.db");
  const hash = "h".repeat(43);
  const parents = [
    null,
    "key:k0",
    "code:key:k0",
    `user:${hash}:ann: a`,
    `code:client:${hash}:b`,
    "user::zoe",
  ];
  {
    using database = new Database(path, { safeIntegers: true });
    migrate(database, MIGRATIONS.slice(0, 1));
    for (const [index, parent] of parents.entries())
      database
        .query("INSERT INTO keys VALUES (?, ?, ?, ?, ?, NULL, 90, 'write', ?)")
        .run(`k${index}`, `n${index}`, hashToken(`${index}`), NOW, NOW + 90, parent);
    const event = `+${encodeTodo({ id: 1n, title: "a", done: false })}`;
    database.query("INSERT INTO todos VALUES (1, ?)").run(event.slice(1));
    database.query("INSERT INTO events SELECT 1, epoch, ? FROM store").run(event);
    database
      .query("INSERT INTO idempotency_records VALUES (?, ?, 1, ?)")
      .run(sha256("key"), sha256("a"), NOW);
    database.run("UPDATE store SET last_id = 1, sequence = 1, transactions = 1");
    storeChecksum(database);
  }
  const before = readFileSync(path);
  expect((await check(path)).map(({ detail }) => detail)).toEqual(Array(3).fill("ok"));
  expect(readFileSync(path)).toEqual(before);
  const store = await openSqlite(path, { now: () => NOW, onWarning: () => {} });
  expect((await store.keys.list()).map((key) => madeWithText(key) ?? null)).toEqual(parents);
  expect((await store.keys.find(hashToken("3")))?.parent).toEqual({
    kind: "user",
    name: "ann: a",
    entryHash: hash,
  });
  expect((await store.insert("a", "key")).id).toBe(1n);
  const position = await store.position();
  expect((await eachEvent(store, { ...position, sequence: 0 }).next()).value?.id).toBe(1n);
  await store.close();
  expect((await check(path)).map(({ detail }) => detail)).toEqual(Array(4).fill("ok"));
});
