import { Database } from "bun:sqlite";
import { afterAll, expect, spyOn, test } from "bun:test";
import { copyFileSync, mkdtempSync, renameSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { decode, read, storeContract } from "../contract.ts";
import { MAX_SQLITE_ID, openSqlite } from "./engine.ts";

const folder = mkdtempSync(join(tmpdir(), "todo-sqlite-"));
afterAll(() => rmSync(folder, { recursive: true }));
let files = 0;
const newPath = (): string => join(folder, `${++files}.db`);

storeContract("sqlite", async (options) => openSqlite(newPath(), options));

test("a store opened again holds what it held, and goes on from there", async () => {
  const path = newPath();
  const first = await openSqlite(path);
  for (const title of ["a", "b", "c", "\u0000\u2028😀"]) await first.insert(title);
  await first.setDone(2n, true);
  await first.delete(4n);
  const position = await first.position();
  const before = await read(await first.list({}));
  await first.close();

  const second = await openSqlite(path);
  expect(await second.position()).toEqual(position);
  expect(await read(await second.list({}))).toEqual(before);
  expect((await second.insert("e")).id).toBe(5n);
  const controller = new AbortController();
  const seen: string[] = [];
  for await (const event of second.events({ ...position, n: 0 }, controller.signal)) {
    seen.push(
      `${event.position.n} ${event.type} ${event.type === "deleted" ? "" : decode(event.json).title}`,
    );
    if (event.position.n === 7) controller.abort();
  }
  expect(seen).toEqual([
    "1 created a",
    "2 created b",
    "3 created c",
    "4 created \u0000\u2028😀",
    "5 updated b",
    "6 deleted ",
    "7 created e",
  ]);
  await second.close();
});

test("a file in use is refused, and free again when its store is closed", async () => {
  const path = newPath();
  const store = await openSqlite(path);
  expect(openSqlite(path)).rejects.toThrow("is in use by another server");
  await store.close();
  await (await openSqlite(path)).close();
});

test("a file that something else has written to takes no more writes until that is undone, and is read on", async () => {
  const path = newPath();
  const store = await openSqlite(path);
  await store.insert("a");
  const other = new Database(path);
  other.run("UPDATE store SET n = n + 1");
  const outcome = await Promise.resolve(store.insert("b")).catch((failure) => failure.cause.message);
  expect(outcome).toContain("not where this server left it");
  expect((await read(await store.list({}))).todos).toHaveLength(1);
  expect(other.query<{ n: number }, []>("SELECT count(*) AS n FROM todos").get()?.n).toBe(1);
  other.run("UPDATE store SET n = n - 1");
  other.close();
  expect((await store.insert("b")).id).toBe(2n);
  await store.close();
});

test("a file that is moved, removed or replaced takes no writes until it is back", async () => {
  const [path, elsewhere] = [newPath(), newPath()];
  const store = await openSqlite(path);
  await store.insert("a");
  const refusal = (): Promise<string> =>
    Promise.resolve(store.insert("lost")).then(
      () => "it was stored",
      ({ cause }) => cause.message,
    );
  const expected = `${path} is not there any more, or is another file: put it back`;
  renameSync(path, elsewhere);
  expect(await refusal()).toBe(expected);
  copyFileSync(elsewhere, path);
  expect(await refusal()).toBe(expected);
  expect((await read(await store.list({}))).todos).toHaveLength(1);
  renameSync(elsewhere, path);
  expect((await store.insert("b")).id).toBe(2n);
  await store.close();
  const again = await openSqlite(path);
  expect((await again.insert("c")).id).toBe(3n);
  await again.close();
});

test("a file that cannot be used is refused, and why is said", async () => {
  expect(openSqlite(join(folder, "no", "such", "folder.db"))).rejects.toThrow("cannot be made or opened");

  const noDatabase = newPath();
  await Bun.write(noDatabase, "not a database, ".repeat(100));
  expect(openSqlite(noDatabase)).rejects.toThrow(`${noDatabase}: file is not a database`);

  const newer = newPath();
  const database = new Database(newer);
  database.run("PRAGMA user_version = 99");
  database.close();
  expect(openSqlite(newer)).rejects.toThrow("written by a newer version of this program");
});

test("a writer that dies fails the writes under way, and is started again", async () => {
  const store = await openSqlite(newPath());
  await store.insert("a");
  using _ = spyOn(Worker.prototype, "postMessage").mockImplementationOnce(function (this: Worker) {
    this.terminate();
  });
  await expect(store.insert("lost")).rejects.toMatchObject({ code: "store_unavailable" });
  expect((await store.insert("b")).id).toBe(2n);
  expect((await read(await store.list({}))).todos.map(({ title }) => title)).toEqual(["a", "b"]);
  await store.close();
});

test("a file keeps events and receipts for a time, and not for ever", async () => {
  const path = newPath();
  let now = 0;
  const store = await openSqlite(path, { maxEvents: 10, now: () => now });
  for (let hour = 1; hour <= 100; hour++) {
    now = hour * 60 * 60 * 1000;
    await store.insert("a", `${hour}`);
  }
  await store.close();
  const database = new Database(path);
  const rows = (table: string) =>
    database.query<{ n: number }, []>(`SELECT count(*) AS n FROM ${table}`).get()?.n;
  expect(rows("events")).toBeWithin(10, 13);
  expect(rows("receipts")).toBe(24);
  database.close();
});

test("ids go up to the last that SQLite knows", async () => {
  const path = newPath();
  await (await openSqlite(path)).close();
  const database = new Database(path);
  database.run(`UPDATE store SET last_id = ${MAX_SQLITE_ID - 1n}`);
  database.close();
  const store = await openSqlite(path);
  expect((await store.insert("last")).id).toBe(MAX_SQLITE_ID);
  await expect(store.insert("more")).rejects.toMatchObject({ code: "store_full" });
  await store.close();
});
