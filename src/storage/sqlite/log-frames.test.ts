import { Database } from "bun:sqlite";
import { afterAll, expect, test } from "bun:test";
import { copyFileSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { countValidFrames } from "./log-frames.ts";

const folder = mkdtempSync(join(tmpdir(), "todo-log-"));
afterAll(() => rmSync(folder, { recursive: true }));

let databases = 0;
const HEADER = 32;
const FRAME = 24 + 4096;
const file = join(folder, "log");
const count = (bytes: Uint8Array): number => {
  writeFileSync(file, bytes);
  return countValidFrames(file);
};

/** Returns a log and the number of its frames that SQLite uses. An older log of the same file leaves more frames behind it. */
function makeLog(): { readonly log: Uint8Array; readonly frames: number } {
  const path = join(folder, `${++databases}.db`);
  const database = new Database(path, { create: true });
  database.run("PRAGMA journal_mode = WAL");
  database.run("PRAGMA synchronous = OFF");
  database.run("CREATE TABLE texts (text TEXT)");
  const insert = database.query("INSERT INTO texts VALUES (?)");
  for (let i = 0; i < 50; i++) insert.run("old".repeat(500));
  database.run("PRAGMA wal_checkpoint(PASSIVE)");
  for (let i = 0; i < 5; i++) insert.run("new".repeat(500));
  copyFileSync(`${path}-wal`, file);
  const result = database.query<{ log: number }, []>("PRAGMA wal_checkpoint(PASSIVE)").get();
  database.close();
  return { log: readFileSync(file), frames: result?.log ?? 0 };
}

test("countValidFrames counts the frames that SQLite finds after a crash", () => {
  const { log, frames } = makeLog();
  expect(frames).toBeGreaterThan(5);
  expect(log.length).toBeGreaterThan(HEADER + frames * FRAME);
  expect(count(log)).toBe(frames);
  expect(count(log.subarray(0, HEADER + 3 * FRAME))).toBe(3);
  expect(count(log.subarray(0, HEADER + 3 * FRAME - 1))).toBe(2);
  expect(count(log.subarray(0, HEADER - 1))).toBe(0);
  expect(count(new Uint8Array())).toBe(0);
  expect(count(new Uint8Array(HEADER + FRAME))).toBe(0);
});

test.each([
  ["the header of the log", 9, 0],
  ["the header of the first frame", HEADER, 0],
  ["the salt of the third frame", HEADER + 2 * FRAME + 8, 2],
  ["the checksum of the third frame", HEADER + 2 * FRAME + 20, 2],
  ["the last byte of the third frame", HEADER + 3 * FRAME - 1, 2],
])("countValidFrames stops at a changed bit in %s", (_what, offset, expected) => {
  const { log } = makeLog();
  log[offset] = (log[offset] ?? 0) ^ 1;
  expect(count(log)).toBe(expected);
});
