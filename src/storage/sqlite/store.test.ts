import { Database } from "bun:sqlite";
import { expect, spyOn, test } from "bun:test";
import {
  copyFileSync,
  existsSync,
  mkdtempSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { dirname, join } from "node:path";
import { errorOf } from "../../../test/rejection.ts";
import { failureOf, persistenceContract, read, storeContract, take } from "../../../test/store-contract.ts";
import { storePathsIn, temporaryFolder } from "../../../test/temporary.ts";
import { until } from "../../../test/until.ts";
import { encodeTodo, type TodoId } from "../../todo.ts";
import { TodoState } from "../state.ts";
import { MAX_SQLITE_ID, putCounters, readCounters } from "./rows.ts";
import { openSqlite } from "./store.ts";

const folder = temporaryFolder();
const newPath = storePathsIn(folder);

storeContract("sqlite", async (options) => openSqlite(newPath(), options));
persistenceContract("sqlite", async () => {
  const path = newPath();
  return () => openSqlite(path, { onWarning: expect.unreachable });
});

test("positions stay valid after restarts, and the next change begins a new epoch", async () => {
  const path = newPath();
  const empty = await openSqlite(path);
  await empty.insert("first");
  await empty.close();
  const starts = [];
  for (const title of ["a", "b", "c"]) {
    const store = await openSqlite(path);
    const start = await store.position();
    starts.push(start);
    await store.insert(title);
    const { epoch, sequence: last } = await store.position();
    expect(epoch).not.toBe(start.epoch);
    for (const position of starts)
      expect((await take(store, position, last - position.sequence)).at(-1)?.n).toBe(last);
    expect(await take(store, { ...start, sequence: start.sequence + 1 }, 1)).toEqual([]);
    const end = await store.position();
    await store.close();
    const again = await openSqlite(path);
    expect(await again.position()).toEqual(end);
    await again.close();
  }
});

test.each<[what: string, suffixes: readonly string[]]>([
  ["stopped store with its mark", ["", "-mark"]],
  ["stopped store without its mark", [""]],
  ["running store", ["", "-wal", "-mark"]],
])("after a copy of a %s is put back, later positions are unknown", async (what, suffixes) => {
  const [path, copy] = [newPath(), newPath()];
  const copyAll = (from: string, to: string): void => {
    for (const suffix of suffixes) copyFileSync(from + suffix, to + suffix);
  };
  let first = await openSqlite(path);
  await first.insert("a");
  const kept = await first.position();
  await first.insert("b");
  const last = await first.position();
  if (what === "running store") copyAll(path, copy);
  else {
    await first.close();
    copyAll(path, copy);
    first = await openSqlite(path);
  }
  await first.insert("lost");
  const lost = await first.position();
  await first.close();
  rmSync(`${path}-mark`);
  copyAll(copy, path);

  const again = await openSqlite(path);
  expect(await again.position()).toEqual(last);
  expect(await take(again, lost, 1)).toEqual([]);
  await again.insert("c");
  expect(await again.position()).toEqual({ epoch: expect.any(String), sequence: lost.sequence });
  expect((await again.position()).epoch).not.toBe(lost.epoch);
  expect(await take(again, lost, 1)).toEqual([]);
  expect((await take(again, kept, 2)).map(({ todo }) => todo?.title)).toEqual(["b", "c"]);
  expect((await take(again, last, 1)).map(({ todo }) => todo?.title)).toEqual(["c"]);
  await again.close();
});

test("concurrent writes take effect in the order of the calls", async () => {
  const path = newPath();
  const store = await openSqlite(path);
  await store.insert("old");
  const start = await store.position();
  const outcomes = await Promise.all([
    store.setDone(2n, true),
    store.insert("a"),
    store.setDone(2n, true),
    store.setDone(3n, true),
    store.delete(3n),
    store.insert("b"),
    store.delete(1n),
    store.setDone(1n, true),
    store.setDone(3n, true),
    store.delete(3n),
    store.delete(3n),
    store.setDone(3n, false),
  ]);
  const a = { id: 2n, title: "a", done: false };
  const b = { id: 3n, title: "b", done: false };
  const after = (changes: number) => ({ position: { ...start, sequence: start.sequence + changes } });
  expect(outcomes).toEqual([
    { json: undefined, ...after(0) },
    { id: 2n, json: encodeTodo(a), ...after(1) },
    { json: encodeTodo({ ...a, done: true }), ...after(2) },
    { json: undefined, ...after(2) },
    { existed: false, ...after(2) },
    { id: 3n, json: encodeTodo(b), ...after(3) },
    { existed: true, ...after(4) },
    { json: undefined, ...after(4) },
    { json: encodeTodo({ ...b, done: true }), ...after(5) },
    { existed: true, ...after(6) },
    { existed: false, ...after(6) },
    { json: undefined, ...after(6) },
  ]);
  expect(await store.position()).toEqual({ ...start, sequence: start.sequence + 6 });
  expect([store.count, (await read(await store.list({}))).todos]).toEqual([1, [{ ...a, done: true }]]);
  await store.close();
  const again = await openSqlite(path);
  expect((await read(await again.list({}))).todos).toEqual([{ ...a, done: true }]);
  await again.close();
});

test("a command can write while the store loads", async () => {
  const path = newPath();
  const first = await openSqlite(path);
  await first.insert("a");
  await first.close();
  using command = new Database(path);
  command.run("PRAGMA busy_timeout = 0");
  let written = 0;
  const onProgress = (): void => {
    command.run("CREATE TABLE IF NOT EXISTS other (x)");
    written++;
  };
  await (await openSqlite(path, { onProgress })).close();
  expect(written).toBeGreaterThan(0);
});

test("a start with a lower limit removes the idempotency keys beyond it from the file", async () => {
  const path = newPath();
  const store = await openSqlite(path);
  for (const key of "abcde") await store.delete((await store.insert("x", key)).id);
  await store.close();
  const limited = await openSqlite(path, { maxTodos: 2 });
  expect((await limited.insert("x", "d")).id).toBe(4n);
  expect((await limited.insert("x", "c")).id).toBe(6n);
  await limited.delete(6n);
  await limited.close();
  using database = new Database(path);
  expect(database.query("SELECT id FROM idempotency_records ORDER BY id").values().flat()).toEqual([5, 6]);
});

test("openSqlite rejects a file in use until its store is closed", async () => {
  const path = newPath();
  for (const _round of ["without a lock file", "with the empty one of the last round"]) {
    const store = await openSqlite(path);
    expect((await errorOf(openSqlite(path))).message).toContain("is in use by another server");
    await store.close();
    expect([statSync(`${path}-lock`).size, existsSync(`${path}-lock-journal`)]).toEqual([0, false]);
  }
});

test("openSqlite rejects a lock that is a symbolic link, and creates nothing at its target", async () => {
  const [path, target] = [newPath(), newPath()];
  symlinkSync(target, `${path}-lock`);
  for (const exists of [false, true]) {
    if (exists) writeFileSync(target, "precious");
    expect((await errorOf(openSqlite(path))).message).toBe(
      `${path}-lock is not a regular file: move it away`,
    );
    expect(existsSync(target)).toBe(exists);
  }
});

test("openSqlite creates a store whose creation was cut off", async () => {
  const [unfinished, path] = [newPath(), newPath()];
  using database = new Database(unfinished);
  database.run("PRAGMA synchronous = OFF; BEGIN; CREATE TABLE x (y)");
  copyFileSync(`${unfinished}-journal`, `${path}-journal`);
  database.run("COMMIT");
  copyFileSync(unfinished, path);
  const store = await openSqlite(path);
  expect((await store.insert("first")).id).toBe(1n);
  await store.close();
});

test("a start whose first check of the files fails does not check them again", async () => {
  using timers = spyOn(globalThis, "setInterval");
  const { postMessage } = Worker.prototype;
  using _ = spyOn(Worker.prototype, "postMessage").mockImplementation(function (this: Worker, message) {
    if (message.request.name === "tick") this.terminate();
    else postMessage.call(this, message);
  });
  await errorOf(openSqlite(newPath()));
  expect(timers).not.toHaveBeenCalled();
});

test("a store whose memory misses a batch that is on disk is not ready, and has the batch after a restart", async () => {
  const path = newPath();
  const store = await openSqlite(path);
  using _ = spyOn(TodoState.prototype, "apply").mockImplementationOnce(() => {
    throw new Error("after the commit");
  });
  for (const title of ["stored", "refused"])
    expect(await failureOf(store.insert(title))).toBe("store_unavailable");
  for (let i = 0; i < 2; i++)
    expect((await errorOf(store.checkWrites?.())).cause).toMatchObject({
      message: expect.stringContaining("at another position than the server: restart the server"),
    });
  await store.close();
  const again = await openSqlite(path);
  expect((await read(await again.list({}))).todos.map(({ title }) => title)).toEqual(["stored"]);
  await again.close();
});

test("a start says that it creates a store, or that it has loaded all to-dos", async () => {
  const path = newPath();
  const reports: unknown[] = [];
  const options = {
    onCreated: () => reports.push("created"),
    onProgress: (...report: readonly unknown[]) => reports.push(report),
  };
  const store = await openSqlite(path, options);
  expect(reports).toEqual(["created"]);
  for (const title of ["a", "b", "c"]) await store.insert(title);
  await store.close();
  await (await openSqlite(path, options)).close();
  expect(reports).toEqual(["created", ["loading", 3, 3]]);
});

test("the usage of the files is that of their last check, because a scrape must not wait for the disk", async () => {
  const path = join(mkdtempSync(join(folder, "usage-")), "todos.db");
  const store = await openSqlite(path);
  const usage = store.fileUsage;
  expect(usage?.databaseBytes).toBe(statSync(path).size);
  renameSync(dirname(path), `${dirname(path)}.elsewhere`);
  expect(store.fileUsage).toEqual(usage);
  renameSync(`${dirname(path)}.elsewhere`, dirname(path));
  await store.insert("a");
  await until(() => store.fileUsage?.walBytes !== usage?.walBytes, "the files are checked again");
  await store.close();
});

test("a file deletes old events and idempotency keys", async () => {
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
  // Each key removes up to two expired ones with the next batch.
  expect(rows("idempotency_records")).toBe(25);
  database.close();
});

test("a clock that jumps forward and back removes two idempotency keys per new key at most, also with a start meanwhile", async () => {
  const path = newPath();
  let now = Date.now();
  const insertAll = async (keys: readonly string[]): Promise<TodoId[]> => {
    const store = await openSqlite(path, { now: () => now });
    const ids: TodoId[] = [];
    for (const key of keys) ids.push((await store.insert("x", key)).id);
    await store.close();
    return ids;
  };
  const keys = [..."abcdefgh"];
  const ids = await insertAll(keys);
  now += 3_600_000 * 24 * 365;
  await insertAll(["later"]);
  now -= 3_600_000 * 24 * 365;
  expect((await insertAll(keys)).slice(2)).toEqual(ids.slice(2));
});

test("an idempotency key that is used again after a day outlives the deletion of its old record", async () => {
  const path = newPath();
  let now = Date.now();
  const store = await openSqlite(path, { now: () => now });
  await store.insert("x", "again");
  now += 3_600_000 * 25;
  // The first write is a batch of its own, and the others are one.
  const titles = [["first"], ["x", "other"], ["x", "again"]] as const;
  const answers = await Promise.all(titles.map(([title, key]) => store.insert(title, key)));
  await store.insert("last");
  await store.close();
  const restarted = await openSqlite(path, { now: () => now });
  expect(await restarted.insert("x", "again")).toMatchObject({ id: answers[2]?.id });
  await restarted.close();
});

test("an evicted idempotency key leaves the file although the batch after it fails", async () => {
  const path = newPath();
  const store = await openSqlite(path, { maxTodos: 2 });
  await store.insert("x", "a");
  await store.delete(1n);
  await store.insert("x", "b");
  await store.delete(2n);
  await store.insert("x", "c");
  const database = new Database(path);
  database.run("CREATE TRIGGER failing BEFORE INSERT ON events BEGIN SELECT RAISE(ABORT, 'no write'); END");
  expect(await failureOf(store.insert("lost"))).toBe("store_unavailable");
  database.run("DROP TRIGGER failing");
  await store.insert("y");
  await store.close();
  expect(database.query("SELECT id FROM idempotency_records ORDER BY id").values().flat()).toEqual([2, 3]);
  database.close();
});

test("openSqlite rejects a path that is too long for SQLite", async () => {
  const long = join(folder, "x".repeat(200), "x".repeat(200), "x".repeat(100));
  expect((await errorOf(openSqlite(long))).message).toContain(
    "is too long: SQLite accepts paths of 499 bytes",
  );
});

test("ids reach SQLite's greatest integer", async () => {
  const path = newPath();
  await (await openSqlite(path)).close();
  const database = new Database(path, { safeIntegers: true });
  putCounters(database, { ...readCounters(database), last_id: MAX_SQLITE_ID - 1n });
  database.close();
  const store = await openSqlite(path);
  expect((await store.insert("last")).id).toBe(MAX_SQLITE_ID);
  expect(await failureOf(store.insert("more"))).toBe("store_full");
  await store.close();
});
