import { Database } from "bun:sqlite";
import { expect, test } from "bun:test";
import { readFileSync, writeFileSync } from "node:fs";
import { storePathsIn } from "../../../test/temporary.ts";
import { createDatabase, openDatabase } from "./database.ts";

const newPath = storePathsIn();

test("openDatabase makes each commit of a connection that writes durable, also for a copy without a WAL", () => {
  const path = newPath();
  createDatabase(path);
  new Database(path).run("PRAGMA journal_mode = DELETE");
  using database = openDatabase(path, "write");
  const pragmas = ["journal_mode", "synchronous", "fullfsync", "wal_autocheckpoint"];
  // 2 is FULL: an fsync of the WAL for each commit.
  expect(pragmas.map((pragma) => database.query(`PRAGMA ${pragma}`).values()[0]?.[0])).toEqual([
    "wal",
    2n,
    1n,
    0n,
  ]);
});

test.each(["read", "write"] as const)("openDatabase cannot %s an empty file, and keeps its WAL", (access) => {
  const path = newPath();
  writeFileSync(path, "");
  writeFileSync(`${path}-wal`, "acknowledged");
  expect(() => openDatabase(path, access)).toThrow("it is empty");
  expect(readFileSync(`${path}-wal`, "utf8")).toBe("acknowledged");
});
