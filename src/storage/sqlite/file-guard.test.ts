import { Database } from "bun:sqlite";
import { describe, expect, test } from "bun:test";
import {
  closeSync,
  copyFileSync,
  existsSync,
  openSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
  writeSync,
} from "node:fs";
import { errorOf, refusalOf } from "../../../test/rejection.ts";
import { read } from "../../../test/store-contract.ts";
import { storePathsIn } from "../../../test/temporary.ts";
import { createKey } from "../../credential/key.ts";
import { ServiceError } from "../../error.ts";
import { encodeTodo } from "../../todo.ts";
import type { Store } from "../store.ts";
import { Checksum } from "./checksum.ts";
import { FileGuard } from "./file-guard.ts";
import { openSqliteKeys } from "./keys.ts";
import { acquireLock } from "./lock.ts";
import { openDatabase } from "./open.ts";
import { openSqlite } from "./store.ts";
import { storeRow, updateStoreRow } from "./store-row.ts";

const newPath = storePathsIn();

/** Returns a function that inserts a to-do as the writer does. */
function inserter(database: Database): () => void {
  const insert = database.query("INSERT INTO todos VALUES (?, ?)");
  return database.transaction(() => {
    const id = storeRow(database).last_id + 1n;
    const json = encodeTodo({ id, title: "x".repeat(120), done: false });
    const checksum = new Checksum();
    checksum.add(json);
    insert.run(id, json);
    updateStoreRow(database, checksum, () => ({ last_id: id }));
  });
}

/** Opens a store and inserts some to-dos. */
async function serve(path: string, count = 10): Promise<Store> {
  const store = await openSqlite(path);
  await Promise.all(Array.from({ length: count }, (_, i) => store.insert(`${i}`)));
  return store;
}

/** Inserts a to-do, or returns the reason of the 503. */
async function insert(store: Store): Promise<string | undefined> {
  try {
    await store.insert("more");
    return undefined;
  } catch (error) {
    if (error instanceof ServiceError && error.code === "store_unavailable" && error.cause instanceof Error)
      return error.cause.message;
    throw error;
  }
}

/** Waits until a store finds that its files are wrong. Returns the reason. */
async function refusal(store: Store): Promise<string> {
  const { cause } = await refusalOf(store);
  return cause instanceof Error ? cause.message : String(cause);
}

async function countOf(path: string): Promise<number> {
  const store = await openSqlite(path);
  const { todos } = await read(await store.list({}));
  await store.close();
  return todos.length;
}

describe("a running store rejects writes", () => {
  test.each<[what: string, damage: (path: string) => void, reason: string]>([
    ["its WAL is removed", (path) => rmSync(`${path}-wal`), "-wal was moved, removed or replaced"],
    ["its WAL is truncated", (path) => truncateSync(`${path}-wal`), ""],
    ["a part of its WAL is truncated", (path) => truncateSync(`${path}-wal`, 4096), ""],
    ["its database is truncated", (path) => truncateSync(path), ""],
    ["its database is removed", (path) => rmSync(path), "was moved, removed or replaced"],
    [
      "its database is replaced",
      (path) => {
        copyFileSync(path, `${path}.copy`);
        renameSync(`${path}.copy`, path);
      },
      "was moved, removed or replaced",
    ],
    [
      "its database is moved, and a link takes its place",
      (path) => {
        renameSync(path, `${path}.moved`);
        symlinkSync(`${path}.moved`, path);
      },
      "was moved, removed or replaced",
    ],
    ["its shared memory is removed", (path) => rmSync(`${path}-shm`), "-shm was moved, removed or replaced"],
    ["its lock is removed", (path) => rmSync(`${path}-lock`), "-lock was moved, removed or replaced"],
  ])("after %s, and serves reads", async (_what, damage, reason) => {
    const path = newPath();
    const store = await serve(path);
    damage(path);
    expect(await refusal(store)).toEndWith(reason);
    for (let i = 0; i < 3; i++) expect(await insert(store)).toEndWith(reason);
    const refused = await createKey(store.keys, "ci", undefined, 1).catch((error) => error.code);
    expect(refused).toBe("store_unavailable");
    expect(store.count).toBe(10);
    await store.close();
  });

  test("after a part of its WAL was overwritten with zeros while another program reads", async () => {
    const path = newPath();
    const store = await serve(path, 2000);
    using reader = new Database(path);
    reader.run("BEGIN");
    reader.query("SELECT count(*) FROM todos").get();
    expect(await insert(store)).toBeUndefined();
    const size = statSync(`${path}-wal`).size;
    truncateSync(`${path}-wal`, 16 * 1024);
    truncateSync(`${path}-wal`, size);
    await refusal(store);
    for (let i = 0; i < 5; i++) expect(await insert(store)).toBeString();
    reader.close();
    await store.close();
  });

  test("after its database was emptied, and keeps its WAL", async () => {
    const path = newPath();
    const store = await serve(path);
    const database = readFileSync(path);
    const wal = readFileSync(`${path}-wal`);
    truncateSync(path);
    expect(await refusal(store)).toContain("it is empty");
    expect(readFileSync(`${path}-wal`).subarray(0, wal.length)).toEqual(wal);
    writeFileSync(path, database);
    expect(await insert(store)).toBeUndefined();
    await store.close();
    expect(await countOf(path)).toBe(11);
  });

  test.each(["-wal", "-lock"])("after its file %s was moved, until it is put back", async (suffix) => {
    const path = newPath();
    const store = await serve(path);
    renameSync(path + suffix, `${path}-elsewhere`);
    expect(await refusal(store)).toContain("was moved, removed or replaced");
    renameSync(`${path}-elsewhere`, path + suffix);
    expect(await insert(store)).toBeUndefined();
    await store.close();
    expect(await countOf(path)).toBe(11);
  });

  test("after a second server has written while its lock was moved, although the lock is back", async () => {
    const path = newPath();
    const store = await serve(path);
    renameSync(`${path}-lock`, `${path}-elsewhere`);
    const second = await openSqlite(path);
    expect(await insert(second)).toBeUndefined();
    await second.close();
    renameSync(`${path}-elsewhere`, `${path}-lock`);
    expect(await insert(store)).toContain("another program has changed");
    await store.close();
    expect(await countOf(path)).toBe(11);
  });

  test("of a second server after the lock of the first one was put back", async () => {
    const path = newPath();
    const store = await serve(path);
    renameSync(`${path}-lock`, `${path}-elsewhere`);
    const second = await openSqlite(path);
    renameSync(`${path}-elsewhere`, `${path}-lock`);
    expect(await refusal(second)).toContain("was moved");
    expect(await insert(store)).toBeUndefined();
    await store.close();
    await second.close();
    expect(await countOf(path)).toBe(11);
  });

  test("while a second server runs because the lock was removed", async () => {
    const path = newPath();
    const store = await serve(path);
    rmSync(`${path}-lock`);
    const second = await openSqlite(path);
    expect(await insert(second)).toBeUndefined();
    expect(await insert(store)).toContain("was moved");
    expect(await insert(store)).toContain("was moved");
    await second.close();
    await store.close();
    expect(await countOf(path)).toBe(11);
  });

  test("after an old copy was written over its database, whose position is in the WAL", async () => {
    const path = newPath();
    const first = await serve(path, 1000);
    await first.close();
    const old = readFileSync(path);
    const second = await openSqlite(path);
    await second.setDone(1n, true);
    await second.close();
    const store = await serve(path, 1);
    const current = readFileSync(path);
    expect(current.length).toBe(old.length);
    writeFileSync(path, old);
    expect(await refusal(store)).toContain(`another program has changed ${path}`);
    expect(await insert(store)).toContain(`another program has changed ${path}`);
    writeFileSync(path, current);
    expect(await insert(store)).toBeUndefined();
    await store.close();
    expect(await countOf(path)).toBe(1002);
  });

  test("after an old copy was written over its database", async () => {
    const path = newPath();
    const store = await serve(path, 100);
    await store.close();
    const old = readFileSync(path);
    const again = await serve(path, 1);
    checkpoint(path);
    writeFileSync(path, old);
    expect(await refusal(again)).toContain(`another program has changed ${path}`);
    await again.close();
  });
});

describe("a store that closes", () => {
  test.each<[what: string, damage: (path: string) => void]>([
    ["its database was emptied", (path) => truncateSync(path)],
    ["a part of its database was truncated", (path) => truncateSync(path, 4096)],
    [
      "its database was replaced",
      (path) => {
        copyFileSync(path, `${path}.copy`);
        renameSync(`${path}.copy`, path);
      },
    ],
    ["a part of its WAL was truncated", (path) => truncateSync(`${path}-wal`, 4096)],
  ])("changes neither its database nor its WAL if %s", async (_what, damage) => {
    for (const isNoticed of [true, false]) {
      const path = newPath();
      await (await serve(path, 100)).close();
      const store = await serve(path);
      damage(path);
      if (isNoticed) await refusal(store);
      const files = [readFileSync(path), readFileSync(`${path}-wal`)];
      await store.close();
      expect([readFileSync(path), readFileSync(`${path}-wal`)]).toEqual(files);
    }
  });

  test("loses nothing if its database was truncated and is put back later", async () => {
    const path = newPath();
    const store = await serve(path);
    const database = readFileSync(path);
    truncateSync(path);
    await store.close();
    writeFileSync(path, database);
    expect(await countOf(path)).toBe(10);
  });

  test("checkpoints its WAL if another process has changed its API keys", async () => {
    const path = newPath();
    const store = await serve(path);
    const { keys, close } = openSqliteKeys(path, { createIfMissing: false, onWarning: expect.unreachable });
    await createKey(keys, "ci", undefined, 1);
    await close();
    await store.close();
    expect(existsSync(`${path}-wal`)).toBe(false);
  });
});

describe("checkWrites of a running store", () => {
  test("fails after a write has failed, until its file is put back", async () => {
    const path = newPath();
    const store = await serve(path);
    await store.checkWrites?.();
    renameSync(`${path}-wal`, `${path}-elsewhere`);
    expect(await refusal(store)).toContain("was moved, removed or replaced");
    for (let i = 0; i < 2; i++) {
      const error = await errorOf(store.checkWrites?.());
      expect(error instanceof ServiceError && error.code).toBe("store_unavailable");
    }
    renameSync(`${path}-elsewhere`, `${path}-wal`);
    await store.checkWrites?.();
    expect(await insert(store)).toBeUndefined();
    await store.close();
  });
});

describe("FileGuard", () => {
  test.each([512, 4096, 65_536])(
    "rejects a WAL with pages of %i bytes that lost frames which only a crash needs",
    (pageSize) => {
      const path = newPath();
      new Database(path).run(`PRAGMA page_size = ${pageSize}; CREATE TABLE unused (id); DROP TABLE unused`);
      using lock = acquireLock(path);
      using database = openDatabase(path, "server");
      database.run("PRAGMA wal_checkpoint(TRUNCATE)");
      const insert = inserter(database);
      for (let i = 0; i < 4; i++) insert();
      // This transaction writes all their pages again, so SQLite needs their first frames only after a crash.
      database.transaction(() => {
        for (let i = 0; i < 200; i++) insert();
      })();
      const committed = { id: storeRow(database).id, sequence: 0, transactions: 0 };
      const guard = new FileGuard(path, lock.identity, database);
      const wal = readFileSync(`${path}-wal`);
      expect(wal.readUInt32BE(8)).toBe(pageSize);
      const file = openSync(`${path}-wal`, "r+");
      // The header of the WAL stays.
      writeSync(file, Buffer.alloc(3 * pageSize - 32), 0, 3 * pageSize - 32, 32);
      expect(guard.check()).toBe(false);
      expect(() => guard.verify(committed)).toThrow("it has lost changes");
      writeSync(file, wal, 0, wal.length, 0);
      closeSync(file);
      guard.verify(committed);
      expect(guard.check()).toBe(true);
    },
  );

  test("finds a WAL that was truncated before later commits, however large it is again", () => {
    const path = newPath();
    using lock = acquireLock(path);
    using database = openDatabase(path, "server");
    const insert = inserter(database);
    for (let i = 0; i < 200; i++) insert();
    const guard = new FileGuard(path, lock.identity, database);
    for (const size of [0, 4096, statSync(`${path}-wal`).size - 100]) {
      expect(guard.check()).toBe(true);
      const wal = readFileSync(`${path}-wal`);
      truncateSync(`${path}-wal`, size);
      for (let i = 0; i < 20; i++) insert();
      expect(statSync(`${path}-wal`).size).toBeGreaterThan(wal.length);
      expect(guard.check()).toBe(false);
      const file = openSync(`${path}-wal`, "r+");
      writeSync(file, wal);
      closeSync(file);
    }
    expect(guard.check()).toBe(true);
  });

  test("finds a WAL whose header was overwritten", () => {
    const path = newPath();
    using lock = acquireLock(path);
    using database = openDatabase(path, "server");
    inserter(database)();
    const guard = new FileGuard(path, lock.identity, database);
    expect(guard.check()).toBe(true);
    const file = openSync(`${path}-wal`, "r+");
    writeSync(file, Buffer.alloc(32), 0, 32, 0);
    closeSync(file);
    expect(guard.check()).toBe(false);
  });

  test("finds an old WAL of the same size that was written over a WAL", () => {
    const path = newPath();
    using lock = acquireLock(path);
    using database = openDatabase(path, "server");
    const insert = inserter(database);
    for (let i = 0; i < 800; i++) insert();
    // SQLite starts the WAL again with the next commit, so the file keeps its size.
    database.run("PRAGMA wal_checkpoint(PASSIVE)");
    const old = readFileSync(`${path}-wal`);
    const guard = new FileGuard(path, lock.identity, database);
    for (let i = 0; i < 100; i++) insert();
    expect(guard.check()).toBe(true);
    writeFileSync(`${path}-wal`, old);
    insert();
    expect(statSync(`${path}-wal`).size).toBe(old.length);
    expect(guard.check()).toBe(false);
  });

  test.each(["before", "after"])(
    "finds an old copy that was written over the database %s SQLite moved the WAL to it",
    (when) => {
      const path = newPath();
      using lock = acquireLock(path);
      using database = openDatabase(path, "server");
      const insert = inserter(database);
      const fill = (count: number) => {
        database.transaction(() => {
          for (let i = 0; i < count; i++) insert();
        })();
      };
      const move = () => {
        database.run("PRAGMA wal_checkpoint(PASSIVE)");
        return true;
      };
      const guard = new FileGuard(path, lock.identity, database);
      fill(1000);
      expect([guard.check(), guard.checkpoint(move)]).toEqual([true, true]);
      const old = readFileSync(path);
      // The file keeps its size, because SQLite would notice a shorter one.
      database.run("UPDATE todos SET json = replace(json, 'false', 'true ')");
      expect([guard.check(), guard.checkpoint(move)]).toEqual([true, true]);
      fill(100);
      expect(guard.check()).toBe(true);
      const isOwn = guard.checkpoint(() => {
        if (when === "before") writeFileSync(path, old);
        move();
        if (when === "after") writeFileSync(path, old);
        return true;
      });
      expect(isOwn).toBe(false);
    },
  );
});

describe("a running store accepts writes", () => {
  test("after the unused end of its WAL was truncated", async () => {
    const path = newPath();
    const store = await serve(path, 2000);
    const size = statSync(`${path}-wal`).size;
    checkpoint(path, "PASSIVE");
    expect(await insert(store)).toBeUndefined();
    expect(statSync(`${path}-wal`).size).toBe(size);
    truncateSync(`${path}-wal`, 64 * 1024);
    truncateSync(`${path}-wal`, size);
    expect(await insert(store)).toBeUndefined();
    await store.close();
    expect(await countOf(path)).toBe(2002);
  });

  test("after another program made a checkpoint of its WAL", async () => {
    const path = newPath();
    const store = await serve(path);
    for (let i = 1; i <= 3; i++) {
      checkpoint(path);
      expect(statSync(`${path}-wal`).size).toBe(0);
      expect(await insert(store)).toBeUndefined();
    }
    await store.close();
    expect(await countOf(path)).toBe(13);
  });

  test("while another process makes one checkpoint after another", async () => {
    const path = newPath();
    const store = await serve(path, 100);
    const other = Bun.spawn([
      process.execPath,
      "-e",
      `const { Database } = require("bun:sqlite");
       const database = new Database(process.argv[1]);
       database.run("PRAGMA busy_timeout = 5000");
       for (;;) database.query("PRAGMA wal_checkpoint(TRUNCATE)").get();`,
      path,
    ]);
    const refusals: (string | undefined)[] = [];
    for (const end = performance.now() + 1500; performance.now() < end; ) refusals.push(await insert(store));
    other.kill();
    await other.exited;
    expect(refusals.filter((refusal) => refusal !== undefined)).toEqual([]);
    await store.close();
    expect(await countOf(path)).toBe(100 + refusals.length);
  });

  test("after another process changed its API keys", async () => {
    const path = newPath();
    const store = await serve(path);
    const beside = openSqliteKeys(path, { createIfMissing: false, onWarning: expect.unreachable });
    for (let i = 0; i < 3; i++) {
      await createKey(beside.keys, `${i}`, undefined, 1);
      expect(await insert(store)).toBeUndefined();
    }
    await beside.close();
    await store.close();
    expect(await countOf(path)).toBe(13);
  });

  test("after a rollback, and keeps its checksum correct", async () => {
    const path = newPath();
    const store = await serve(path);
    using other = new Database(path);
    other.run("CREATE TRIGGER failing BEFORE INSERT ON events BEGIN SELECT RAISE(ABORT, 'no write'); END");
    for (let i = 0; i < 2; i++) expect(await insert(store)).toBe("no write");
    other.run("DROP TRIGGER failing");
    for (let i = 0; i < 2; i++) expect(await insert(store)).toBeUndefined();
    other.close();
    await store.close();
    expect(await countOf(path)).toBe(12);
  });

  test("after many checkpoints of its WAL", async () => {
    const path = newPath();
    const store = await openSqlite(path);
    const title = "x".repeat(120);
    for (let i = 0; i < 40; i++) await Promise.all(Array.from({ length: 500 }, () => store.insert(title)));
    await store.close();
    expect(await countOf(path)).toBe(20_000);
  });
});

function checkpoint(path: string, mode = "TRUNCATE"): void {
  const other = new Database(path);
  other.run(`PRAGMA wal_checkpoint(${mode})`);
  other.close();
}
