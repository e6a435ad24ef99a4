import { Database } from "bun:sqlite";
import { afterEach, describe, expect, spyOn, test } from "bun:test";
import { createHash } from "node:crypto";
import {
  copyFileSync,
  existsSync,
  globSync,
  mkdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from "node:fs";
import { basename, dirname, join } from "node:path";
import { errorOf, refusalOf } from "../../../test/rejection.ts";
import { read } from "../../../test/store-contract.ts";
import { temporaryFolder } from "../../../test/temporary.ts";
import { until } from "../../../test/until.ts";
import { createKey } from "../../credential/key.ts";
import { ServiceError } from "../../error.ts";
import type { Store, StoreOptions } from "../store.ts";
import { createDatabase, openDatabase } from "./database.ts";
import { FileWatch, writeMark } from "./file-watch.ts";
import { openSqliteKeys } from "./keys.ts";
import { acquireLock } from "./lock.ts";
import { backup, restore } from "./maintenance.ts";
import { restoreCommand } from "./rescue.ts";
import { changeKeys, readCounters } from "./rows.ts";
import { openSqlite } from "./store.ts";

const folder = temporaryFolder();
const { signal } = new AbortController();
let folders = 0;

function newPath(): string {
  const own = join(folder, `${++folders} my to-dos`);
  mkdirSync(own);
  return join(own, "todos.db");
}

const STORED = 300;
const ADDED = 10;
const COUNT = STORED + ADDED;

/** Opens a store with to-dos in its database, and ten in its WAL, one of which has an idempotency key. */
async function serve(path: string, options: StoreOptions = {}): Promise<Store> {
  const first = await openSqlite(path);
  await Promise.all(Array.from({ length: STORED }, (_, i) => first.insert(`stored ${i}`)));
  await first.close();
  const store = await openSqlite(path, options);
  await Promise.all(
    Array.from({ length: ADDED }, (_, i) => store.insert(`${i}`, i === 0 ? "key" : undefined)),
  );
  return store;
}

const readers: Database[] = [];
afterEach(() => {
  for (const reader of readers.splice(0)) reader.close();
});

/** Opens a store whose last to-do stays in the WAL, because another program reads the store as it was before. */
async function serveUnmoved(path: string, options: StoreOptions = {}): Promise<Store> {
  const store = await serve(path, options);
  const reader = new Database(path);
  reader.run("BEGIN");
  reader.query("SELECT count(*) FROM todos").get();
  readers.push(reader);
  await store.insert("unmoved");
  return store;
}

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

async function countOf(path: string): Promise<number> {
  const store = await openSqlite(path, { onWarning: expect.unreachable });
  const { todos } = await read(await store.list({}));
  await store.close();
  return todos.length;
}

async function rescued(store: Store): Promise<string> {
  await until(() => store.rescueFile !== undefined, "there is a rescue file");
  return store.rescueFile ?? "";
}

const rescueFiles = (path: string): string[] => globSync(`${path}.rescue-*.ndjson`);

/** Overwrites a file as `cat` does, which truncates it first. */
const overwrite = (file: string, bytes: Uint8Array): void => writeFileSync(file, bytes);

function runSql(path: string, ...statements: readonly string[]): void {
  using database = new Database(path);
  for (const statement of ["PRAGMA busy_timeout = 5000", ...statements]) database.run(statement);
}

interface Injury {
  readonly injure: (path: string) => unknown;
  readonly said: string;
  readonly undo?: (path: string) => unknown;
}

const move = (suffix: string): Injury => ({
  injure: (path) => renameSync(path + suffix, `${path}.elsewhere`),
  undo: (path) => renameSync(`${path}.elsewhere`, path + suffix),
  said: `${suffix} was moved, removed or replaced`,
});
const kept = new Map<string, Buffer>();
const keep = (file: string): void => void kept.set(file, readFileSync(file));
const putBack = (file: string): void => overwrite(file, kept.get(file) ?? Buffer.alloc(0));

const INJURIES: Readonly<Record<string, Injury>> = {
  "database is moved": move(""),
  "WAL is moved": move("-wal"),
  "shared memory is moved": move("-shm"),
  "lock is moved": move("-lock"),
  "database is replaced": {
    injure: (path) => {
      copyFileSync(path, `${path}.copy`);
      renameSync(`${path}.copy`, path);
    },
    said: "was moved, removed or replaced",
  },
  "files are all removed": {
    injure: (path) => {
      for (const suffix of ["", "-wal", "-shm", "-lock", "-mark"]) rmSync(path + suffix);
    },
    said: "was moved, removed or replaced",
  },
  "database is moved, and a link takes its place": {
    injure: (path) => {
      renameSync(path, `${path}.moved`);
      symlinkSync(`${path}.moved`, path);
    },
    undo: (path) => renameSync(`${path}.moved`, path),
    said: "was moved, removed or replaced",
  },
  "database is emptied": {
    injure: (path) => {
      keep(path);
      truncateSync(path);
    },
    undo: putBack,
    said: "",
  },
  "database is truncated": { injure: (path) => truncateSync(path, 4096), said: "" },
  "WAL is emptied": { injure: (path) => truncateSync(`${path}-wal`), said: "" },
  "WAL is truncated": { injure: (path) => truncateSync(`${path}-wal`, 4096), said: "" },
  "WAL is overwritten": {
    injure: (path) => overwrite(`${path}-wal`, readFileSync(`${path}-wal`).fill(7)),
    said: "",
  },
  "to-dos are changed by another program": {
    injure: (path) => runSql(path, "UPDATE todos SET json = replace(json, 'false', 'true') WHERE id = 3"),
    undo: (path) => runSql(path, "UPDATE todos SET json = replace(json, 'true', 'false') WHERE id = 3"),
    said: "another program has changed ",
  },
  "to-dos are deleted by another program": {
    injure: (path) => runSql(path, "DELETE FROM todos WHERE id % 2 = 0"),
    said: "another program has changed ",
  },
  "database is overwritten while a command makes an API key": {
    injure: (path) => {
      overwrite(path, Buffer.from(readFileSync(path, "latin1").replaceAll("stored 5", "stored 6"), "latin1"));
      using database = openDatabase(path, "write");
      const key = {
        id: "k",
        name: "beside",
        tokenHash: new Uint8Array(32),
        scope: "read",
        createdAt: 1,
      } as const;
      database.transaction(() => changeKeys(database, { type: "insert", key })).immediate();
    },
    said: "another program has changed ",
  },
  "position is changed by another program": {
    injure: (path) => runSql(path, "UPDATE store SET sequence = sequence + 1"),
    said: "its counters are damaged",
  },
};

describe("a running store whose", () => {
  test.each(Object.entries(INJURIES))(
    "%s serves reads, rejects writes, saves everything, and is not changed when it closes",
    async (_what, { injure, said }) => {
      const path = newPath();
      const warnings: string[] = [];
      const store = await serveUnmoved(path, { onWarning: (message) => warnings.push(message) });
      const { token = "" } = (await createKey(store.keys, "ci", undefined, 1)) ?? {};
      const hash = createHash("sha256").update(token).digest();
      injure(path);
      await refusalOf(store);
      const file = await rescued(store);
      expect(await insert(store)).toContain(said);
      expect((await errorOf(createKey(store.keys, "more", undefined, 1))).message).toBe("store_unavailable");
      expect(await errorOf(store.checkWrites?.())).toMatchObject({
        detail: expect.stringContaining(basename(file)),
      });
      expect((await read(await store.list({}))).todos).toHaveLength(COUNT + 1);
      expect((await store.keys.find(hash))?.name).toBe("ci");
      expect(warnings).toEqual([
        expect.stringContaining(
          `Put the right files back. If you cannot, stop the server, run ${restoreCommand(file, path)}, and start the server`,
        ),
      ]);
      expect([dirname(file), statSync(file).mode & 0o777]).toEqual([dirname(path), 0o600]);
      const files = () =>
        ["", "-wal"].map((suffix) => existsSync(path + suffix) && readFileSync(path + suffix));
      const before = files();
      await store.close();
      expect(files()).toEqual(before);
      expect(rescueFiles(path)).toEqual([file]);

      expect(await restore(path, file, { signal })).toMatchObject({ todos: COUNT + 1, keys: 1 });
      const again = await openSqlite(path);
      expect((await again.insert("0", "key")).id).toBe(BigInt(STORED + 1));
      expect((await again.insert("next")).id).toBe(BigInt(COUNT + 2));
      expect((await again.keys.find(hash))?.name).toBe("ci");
      await again.close();
    },
  );

  const repairable = Object.entries(INJURIES).filter(([, { undo }]) => undo !== undefined);
  test.each(repairable)("%s accepts writes after the files are restored", async (_what, { injure, undo }) => {
    const path = newPath();
    const warnings: string[] = [];
    const store = await serveUnmoved(path, { onWarning: (message) => warnings.push(message) });
    injure(path);
    await refusalOf(store);
    const file = await rescued(store);
    undo?.(path);
    await until(() => store.rescueFile === undefined, "the files are right again");
    expect(warnings.at(-1)).toBe(
      `the files of the store are right again: do not restore ${file}.old, which lacks later changes`,
    );
    await store.checkWrites?.();
    expect(await insert(store)).toBeUndefined();
    await store.close();
    expect([rescueFiles(path), existsSync(`${file}.old`)]).toEqual([[], true]);
    expect(await countOf(path)).toBe(COUNT + 2);
  });

  test.each(Object.entries(INJURIES))("%s saves everything if closed at once", async (_what, { injure }) => {
    const path = newPath();
    const store = await serveUnmoved(path);
    injure(path);
    await store.close();
    const [file = ""] = rescueFiles(path);
    expect(await restore(path, file, { signal })).toMatchObject({ todos: COUNT + 1 });
  });

  test("configured path names another folder now saves everything there, where the next start refuses to create a store", async () => {
    const [first, second] = [newPath(), newPath()];
    const link = join(folder, "current");
    symlinkSync(dirname(first), link);
    const name = join(link, "todos.db");
    const store = await serve(name);
    rmSync(link);
    symlinkSync(dirname(second), link);
    expect((await refusalOf(store)).cause).toMatchObject({ message: expect.any(String) });
    const file = await rescued(store);
    expect(await insert(store)).toContain("names another file than");
    await store.close();
    expect(dirname(file)).toBe(dirname(second));
    expect((await errorOf(openSqlite(name))).message).toContain(`run ${restoreCommand(file, second)}`);
    await restore(second, file, { signal });
    const again = await openSqlite(name);
    expect(again.count).toBe(COUNT);
    await again.close();
  });

  test("folder is gone is saved in another folder, or the warning says not to stop", async () => {
    const [path, other] = [newPath(), join(folder, "other")];
    const warnings: string[] = [];
    const store = await serve(path, { rescueFolder: other, onWarning: (message) => warnings.push(message) });
    renameSync(dirname(path), `${dirname(path)}.elsewhere`);
    await until(() => warnings.length > 0, "there is a warning");
    expect(warnings[0]).toStartWith("do not stop the server, because only its memory has all to-dos: ");
    mkdirSync(other);
    expect(dirname(await rescued(store))).toBe(other);
    await store.close();
    expect(warnings).toHaveLength(2);
  });

  test("folder is gone, and that closes, rejects and has said that the to-dos are only in memory", async () => {
    const path = newPath();
    const warnings: string[] = [];
    const store = await serve(path, { onWarning: (message) => warnings.push(message) });
    rmSync(dirname(path), { recursive: true });
    expect((await errorOf(store.close())).message).toContain("was moved, removed or replaced");
    expect(warnings).toEqual([expect.stringContaining("curl SERVER/api/todos > todos.json")]);
  });

  test("writer thread has exited saves everything when it closes", async () => {
    const path = newPath();
    const store = await serve(path);
    using _ = spyOn(Worker.prototype, "postMessage").mockImplementationOnce(function (this: Worker) {
      this.terminate();
    });
    for (let i = 0; i < 2; i++) expect(await insert(store)).toBeString();
    await store.close();
    expect(await restore(path, rescueFiles(path)[0] ?? "", { signal })).toMatchObject({ todos: COUNT });
  });

  test("old copies of all files, mark included, are in place does not start again without the rescue file", async () => {
    const path = newPath();
    const store = await serve(path);
    for (const suffix of ["", "-wal", "-mark"]) keep(path + suffix);
    await store.insert("later");
    for (const suffix of ["", "-wal", "-mark"]) putBack(path + suffix);
    await refusalOf(store);
    const file = await rescued(store);
    await store.close();
    // In this process, SQLite knows the files of the closed store.
    const copy = newPath();
    for (const suffix of ["", "-wal", "-mark"]) copyFileSync(path + suffix, copy + suffix);
    const rescue = join(dirname(copy), basename(file));
    copyFileSync(file, rescue);
    expect((await errorOf(openSqlite(copy))).message).toContain(
      `its last change is missing: put the right files back, run ${restoreCommand(rescue, copy)}`,
    );
  });

  test("files were moved before a restore does not write over the mark of the restored store", async () => {
    const [path, elsewhere, file] = [newPath(), newPath(), `${newPath()}.backup`];
    const store = await serve(path);
    await backup(path, file, { signal });
    for (const suffix of ["", "-wal", "-shm", "-lock", "-mark"])
      renameSync(path + suffix, elsewhere + suffix);
    await restore(path, file, { signal });
    const mark = readFileSync(`${path}-mark`);
    await refusalOf(store);
    await rescued(store);
    await store.close();
    expect(readFileSync(`${path}-mark`)).toEqual(mark);
  });

  test("rescue file has no API key that a command had revoked", async () => {
    const path = newPath();
    const store = await serve(path);
    const { token = "", key } = (await createKey(store.keys, "ci", undefined, 1)) ?? {};
    const beside = openSqliteKeys(path, { createIfMissing: false });
    await beside.keys.delete(key?.id ?? "");
    await createKey(beside.keys, "beside", undefined, 1);
    await beside.close();
    renameSync(path, `${path}.elsewhere`);
    const text = readFileSync(await rescued(store), "utf8");
    expect([text.includes('"name":"ci"'), text.includes('"name":"beside"')]).toEqual([false, true]);
    expect(await store.keys.find(createHash("sha256").update(token).digest())).toBeUndefined();
    await store.close();
  });
});

describe("an old copy of the database that is written over", () => {
  test("a quiet store is rejected, and everything is saved", async () => {
    const path = newPath();
    const store = await serve(path);
    await until(() => readFileSync(path, "latin1").includes('"title":"9"'), "the WAL is moved");
    keep(path);
    for (let id = 1n; id <= 5n; id++) await store.delete(id);
    runSql(path, "PRAGMA wal_checkpoint(PASSIVE)");
    putBack(path);
    await refusalOf(store);
    const file = await rescued(store);
    await store.close();
    expect(await restore(path, file, { signal })).toMatchObject({ todos: COUNT - 5 });
  });
});

describe("two servers of one file", () => {
  test("cannot write at the same time, although the lock was removed", async () => {
    const path = newPath();
    const store = await serve(path);
    rmSync(`${path}-lock`);
    const second = await openSqlite(path);
    expect(await insert(second)).toBeUndefined();
    expect(await insert(store)).toContain("was moved");
    await second.close();
    await store.close();
  });

  test("cannot write at the same time after the lock of the first one was put back", async () => {
    const path = newPath();
    const store = await serve(path);
    renameSync(`${path}-lock`, `${path}-elsewhere`);
    const second = await openSqlite(path);
    expect(await insert(second)).toBeUndefined();
    await second.close();
    renameSync(`${path}-elsewhere`, `${path}-lock`);
    // The check of each second may have missed the lock before.
    await until(async () => (await insert(store))?.includes("was moved") === false, "the lock is found");
    expect(await insert(store)).toContain("another program has changed");
    await store.close();
  });
});

describe("a running store accepts writes", () => {
  test.each<[what: string, ...statements: string[]]>([
    ["a checkpoint", "PRAGMA wal_checkpoint(TRUNCATE)"],
    ["VACUUM", "VACUUM"],
    ["a new index", "CREATE INDEX other ON todos (json)"],
    ["a new table, as Litestream's", "CREATE TABLE other (x)", "INSERT INTO other VALUES (1)"],
    ["a row in an unused table", "CREATE TABLE other (x)", "PRAGMA wal_checkpoint(TRUNCATE)"],
  ])("after %s of another program", async (_what, ...statements) => {
    const path = newPath();
    const store = await serve(path, { onWarning: expect.unreachable });
    for (let i = 1; i <= 3; i++) {
      runSql(
        path,
        ...(i === 1 ? statements : statements.slice(-1).filter((sql) => !sql.startsWith("CREATE"))),
      );
      expect(await insert(store)).toBeUndefined();
    }
    await store.close();
    expect(await countOf(path)).toBe(COUNT + 3);
  });

  test("while another process makes one checkpoint after another", async () => {
    const path = newPath();
    const store = await serve(path, { onWarning: expect.unreachable });
    const source = `const { Database } = require("bun:sqlite");
      const database = new Database(process.argv[1]);
      database.run("PRAGMA busy_timeout = 5000");
      for (;;) database.query("PRAGMA wal_checkpoint(TRUNCATE)").get();`;
    const other = Bun.spawn([process.execPath, "-e", source, path]);
    const refusals: (string | undefined)[] = [];
    while (refusals.length < 300) refusals.push(await insert(store));
    other.kill();
    await other.exited;
    expect(refusals.filter((refusal) => refusal !== undefined)).toEqual([]);
    await store.close();
    expect(await countOf(path)).toBe(COUNT + 300);
  });

  test("after a rollback, and keeps its checksum correct", async () => {
    const path = newPath();
    const store = await serve(path);
    const trigger =
      "CREATE TRIGGER failing BEFORE INSERT ON todos BEGIN SELECT RAISE(ABORT, 'no write'); END";
    runSql(path, trigger);
    const position = await store.position();
    for (let i = 0; i < 2; i++) expect(await insert(store)).toBe("no write");
    expect(await errorOf(store.checkWrites?.())).toMatchObject({ code: "store_unavailable" });
    runSql(path, "DROP TRIGGER failing");
    await store.checkWrites?.();
    expect([store.checkWrites?.(), await store.position()]).toEqual([undefined, position]);
    for (let i = 0; i < 2; i++) expect(await insert(store)).toBeUndefined();
    await store.close();
    expect(await countOf(path)).toBe(COUNT + 2);
  });

  test("after many checkpoints of its WAL", async () => {
    const path = newPath();
    const store = await openSqlite(path, { onWarning: expect.unreachable });
    for (let i = 0; i < 500; i++) await Promise.all([store.insert("x".repeat(120)), store.insert("y")]);
    await store.close();
    expect(await countOf(path)).toBe(1000);
  });
});

test("a copy of the database alone is complete after a second with few writes, also of a new store", async () => {
  const path = newPath();
  const store = await serve(path);
  const copy = `${newPath()}.copy`;
  await until(
    () => statSync(path).size > 4096 && readFileSync(path, "latin1").includes('"title":"9"'),
    "the WAL is moved",
  );
  copyFileSync(path, copy);
  const warnings: string[] = [];
  const opened = await openSqlite(copy, { onWarning: (message) => warnings.push(message) });
  expect(opened.count).toBe(COUNT);
  expect(warnings).toEqual([expect.stringContaining("as beside a copy")]);
  await opened.close();
  await store.close();
});

test("a mark that cannot be read fails no write", () => {
  const path = newPath();
  createDatabase(path);
  using database = openDatabase(path, "read");
  // Too long for a name.
  writeMark(join(folder, "x".repeat(300)), readCounters(database));
});

describe("FileWatch", () => {
  function start() {
    const path = newPath();
    const lock = acquireLock(path);
    createDatabase(path);
    const database = openDatabase(path, "write");
    database.query("SELECT count(*) FROM todos").get();
    const files = new FileWatch(path, path);
    let writes = 0;
    const write = (): void => {
      database.run("INSERT INTO events VALUES (?, '', ?, 0)", [++writes, "x".repeat(20_000)]);
      files.acceptWrite();
    };
    return { path, database, files, write, [Symbol.dispose]: () => lock[Symbol.dispose]() };
  }

  test("finds a WAL that was overwritten while a transaction was written, until the store is read back", () => {
    using started = start();
    const { path, files, write } = started;
    for (let i = 0; i < 4; i++) write();
    expect(files.areUnchanged()).toBe(true);
    writeFileSync(`${path}-wal`, readFileSync(`${path}-wal`).fill(7), { flag: "r+" });
    files.acceptWrite();
    for (let i = 0; i < 2; i++) expect(files.areUnchanged()).toBe(false);
    files.accept();
    expect(files.areUnchanged()).toBe(true);
  });

  test("finds the WAL of an earlier time that was written over a newer one while a transaction was written", () => {
    using started = start();
    const { path, database, files, write } = started;
    for (let i = 0; i < 8; i++) write();
    database.run("PRAGMA wal_checkpoint(PASSIVE)");
    files.acceptCheckpoint();
    const old = readFileSync(`${path}-wal`);
    // SQLite starts the WAL again, so the file keeps its size.
    for (let i = 0; i < 3; i++) write();
    expect([statSync(`${path}-wal`).size, files.areUnchanged()]).toEqual([old.length, true]);
    writeFileSync(`${path}-wal`, old, { flag: "r+" });
    files.acceptWrite();
    expect(files.areUnchanged()).toBe(false);
  });
});
