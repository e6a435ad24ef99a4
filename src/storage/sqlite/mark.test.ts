import { Database } from "bun:sqlite";
import { describe, expect, test } from "bun:test";
import {
  chmodSync,
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
import { errorOf, refusalOf } from "../../../test/rejection.ts";
import { read } from "../../../test/store-contract.ts";
import { copiesOf, storePathsIn, temporaryFolder } from "../../../test/temporary.ts";
import type { Awaitable } from "../../awaitable.ts";
import { createKey } from "../../credential/key.ts";
import type { Store } from "../store.ts";
import { openSqliteKeys } from "./keys.ts";
import { acceptLoss } from "./maintenance/accept-loss.ts";
import { migrateFile } from "./maintenance/access.ts";
import { backup, restore } from "./maintenance/backup.ts";
import { check, probeSqlite } from "./maintenance/check.ts";
import { exportSkippingDamaged } from "./maintenance/skip-damaged.ts";
import { exportTodos, importTodos } from "./maintenance/transfer.ts";
import { readMark, writeMark } from "./mark.ts";
import { openSqlite } from "./store.ts";
import { quoteArgument, restoreCommand } from "./ways-out.ts";

const folder = temporaryFolder();
const newPath = storePathsIn(folder);

function newFile(text: string): string {
  const path = newPath();
  writeFileSync(path, text);
  return path;
}

const recoveryHint = (path: string): string =>
  `put the right files back, restore a backup with todo restore, or continue without them with todo accept-loss ${quoteArgument(path)}`;
const NOW = Date.UTC(2026, 0, 2);
const { signal } = new AbortController();

const copyStore = (from: string, to: string, ...suffixes: readonly string[]): void => {
  for (const suffix of suffixes) copyFileSync(from + suffix, to + suffix);
};

async function insert(path: string, ...titles: readonly string[]): Promise<void> {
  const store = await openSqlite(path);
  for (const title of titles) await store.insert(title);
  await store.close();
}

/** Inserts 50 to-dos in one transaction. */
const insertMany = (store: Store, title: string): Promise<unknown> =>
  Promise.all(Array.from({ length: 50 }, () => store.insert(title)));

async function titlesOf(path: string): Promise<string[]> {
  const store = await openSqlite(path);
  const { todos } = await read(await store.list({}));
  await store.close();
  return todos.map(({ title }) => title);
}

/** Returns the warnings of an opened store, or the message of a refused start. */
async function start(path: string, now = Date.now): Promise<readonly string[] | string> {
  const warnings: string[] = [];
  try {
    await (await openSqlite(path, { now, onWarning: (message) => warnings.push(message) })).close();
    return warnings;
  } catch (error) {
    return error instanceof Error ? error.message : String(error);
  }
}

/** Returns the path of a store as a killed server leaves it, with three to-dos in the WAL. */
const killedStore = copiesOf(newPath, async (path) => {
  const running = newPath();
  const store = await openSqlite(running);
  for (const title of ["a", "b", "c"]) await store.insert(title);
  copyStore(running, path, "", "-wal", "-mark");
  await store.close();
});

/** Returns the path of a store over which an old copy was written: two to-dos are missing. */
const behindStore = copiesOf(newPath, async (path) => {
  await insert(path, "a");
  copyFileSync(path, `${path}.old`);
  await insert(path, "b", "c");
  copyFileSync(`${path}.old`, path);
});

describe("openSqlite", () => {
  test("refuses an old copy, and reports how many transactions are missing", async () => {
    const path = await behindStore();
    expect(await start(path)).toBe(
      `${path}: its last 2 transactions are missing, each with one or more acknowledged changes: ${recoveryHint(path)}`,
    );
  });

  test("names the newest rescue file before a backup", async () => {
    const path = await behindStore();
    for (const day of [1, 2]) writeFileSync(`${path}.rescue-2026010${day}T000000000Z.ndjson`, "");
    expect(await start(path)).toContain(
      `put the right files back, run ${restoreCommand(`${path}.rescue-20260102T000000000Z.ndjson`, path)}, which has what a server held at 2026-01-02 00:00 UTC, restore a backup`,
    );
  });

  test("names no rescue file that is older than a successful start", async () => {
    const path = newPath();
    await insert(path, "a");
    copyFileSync(path, `${path}.old`);
    const rescue = `${path}.rescue-20260101T000000000Z.ndjson`;
    writeFileSync(rescue, "{}");
    expect(await start(path)).toEqual([
      `this start does not need ${rescue}, which has what a server held at 2026-01-01 00:00 UTC: it is now ${rescue}.old; restore it only if to-dos are missing`,
    ]);
    await insert(path, "b");
    copyFileSync(`${path}.old`, path);
    expect(await start(path)).toContain(
      `missing, with one or more acknowledged changes: ${recoveryHint(path)}`,
    );
    expect(readFileSync(`${rescue}.old`, "utf8")).toBe("{}");
  });

  test("says that an old WAL hides changes, after whose removal all are there", async () => {
    const path = newPath();
    const store = await openSqlite(path);
    for (let i = 0; i < 20; i++) await insertMany(store, `early ${i}`);
    const wal = readFileSync(`${path}-wal`);
    for (let i = 0; i < 20; i++) await insertMany(store, `late ${i}`);
    await store.close();
    writeFileSync(`${path}-wal`, wal);
    expect(await start(path)).toContain(
      `put the right files back, stop all servers of the store and move ${path}-wal away, because it is old, and ${path} alone is sound and has 40 transactions, restore a backup`,
    );
    expect(readFileSync(`${path}-wal`)).toEqual(wal);
    rmSync(`${path}-wal`);
    expect(await start(path)).toEqual([]);
    expect(await titlesOf(path)).toHaveLength(40 * 50);
  });

  test("accepts the store of a killed server", async () => {
    expect(await titlesOf(await killedStore())).toEqual(["a", "b", "c"]);
  });

  test("refuses a store without its WAL, and changes nothing", async () => {
    const path = await killedStore();
    rmSync(`${path}-wal`);
    const before = readFileSync(path);
    expect(await start(path)).toContain(recoveryHint(path));
    expect(readFileSync(path)).toEqual(before);
  });

  test("refuses a WAL with a damaged frame, and keeps it", async () => {
    const path = await killedStore();
    const wal = readFileSync(`${path}-wal`);
    wal.writeUInt8(wal.readUInt8(wal.length - 100) ^ 1, wal.length - 100);
    writeFileSync(`${path}-wal`, wal);
    expect(await start(path)).toContain(`its last transaction is missing`);
    expect(readFileSync(`${path}-wal`)).toEqual(wal);
  });

  test.each<[what: string, damage: (path: string) => void]>([
    ["missing", (path) => rmSync(path)],
    ["empty", (path) => truncateSync(path)],
  ])("refuses a WAL whose database is %s, and keeps the WAL, like every command", async (what, damage) => {
    const path = await killedStore();
    const database = readFileSync(path);
    const wal = readFileSync(`${path}-wal`);
    damage(path);
    const work = { signal };
    async function* lines() {
      yield Buffer.from('{"id":1,"title":"imported","done":false}\n');
    }
    const commands: readonly (() => unknown)[] = [
      () => openSqlite(path),
      () => openSqliteKeys(path, { createIfMissing: false, onWarning: expect.unreachable }),
      () => probeSqlite(path),
      () => check(path),
      () => backup(path, newPath(), { signal }),
      () => exportTodos(path, async () => {}, work),
      () => exportSkippingDamaged(path, async () => {}, work),
      () => importTodos(path, lines(), 10, work),
      () => acceptLoss(path),
      () => migrateFile(path),
    ];
    for (const mark of ["with a mark", "without a mark"]) {
      if (mark === "without a mark") rmSync(`${path}-mark`);
      for (const command of commands) {
        expect((await errorOf((async () => command())())).message).toBe(
          `${path}: it is ${what}, but ${path}-wal has changes: put the right files back, restore a backup with todo restore, or move both files away`,
        );
        expect(readFileSync(`${path}-wal`)).toEqual(wal);
      }
    }
    writeFileSync(path, database);
    expect(await titlesOf(path)).toEqual(["a", "b", "c"]);
  });

  test("refuses a store that does not belong to its mark", async () => {
    const [path, other] = [newPath(), newPath()];
    await insert(path, "a");
    await insert(other, "b");
    copyFileSync(other, path);
    expect(await start(path)).toContain(`it is another store than that of ${path}-mark`);
  });

  test("refuses a missing store, and creates none", async () => {
    const path = newPath();
    await insert(path, "a");
    rmSync(path);
    expect(await start(path)).toBe(
      `${path}: it is missing, but ${path}-mark has 1 transaction: ${recoveryHint(path)}`,
    );
    expect(existsSync(path)).toBe(false);
  });

  test.each<[what: string, damage: (path: string) => void, message: string]>([
    ["an empty store", (path) => truncateSync(path), "it is empty, but"],
    ["a truncated store", (path) => truncateSync(path, 5000), "it is damaged ("],
  ])("refuses %s", async (_what, damage, message) => {
    const path = newPath();
    await insert(path, "a");
    damage(path);
    expect(await start(path)).toContain(message);
  });

  test.each<[what: string, change: (mark: string) => void, problem: string]>([
    ["missing", (mark) => rmSync(mark), "it is missing"],
    ["empty", (mark) => truncateSync(mark), "it is damaged"],
    [
      "changed",
      (mark) => writeFileSync(mark, readFileSync(mark, "utf8").replace("01 ", "02 ")),
      "it is damaged",
    ],
  ])("reports a mark that is %s, and writes it again", async (_what, change, problem) => {
    const path = newPath();
    await insert(path, "a");
    change(`${path}-mark`);
    expect(await start(path)).toEqual([`${path}-mark cannot be read: ${problem}`]);
    expect(await start(path)).toEqual([]);
  });

  test("accepts an older mark, and bytes after its line", async () => {
    const path = newPath();
    await insert(path, "a");
    const older = readFileSync(`${path}-mark`);
    await insert(path, "b");
    writeFileSync(`${path}-mark`, `${older} rest`);
    expect(await start(path)).toEqual([]);
    expect(await titlesOf(path)).toEqual(["a", "b"]);
  });

  test("does not report the missing mark of a new store", async () => {
    expect(await start(newPath())).toEqual([]);
  });

  test("reports once that the mark cannot be written, and acknowledges writes", async () => {
    const path = newPath();
    mkdirSync(`${path}-mark`);
    const warnings: string[] = [];
    const store = await openSqlite(path, { onWarning: (message) => warnings.push(message) });
    for (const title of ["a", "b"]) await store.insert(title);
    await store.close();
    expect(warnings).toEqual([
      `the high-water mark cannot be written: it is a folder, not a file: move ${path}-mark away`,
    ]);
    rmSync(`${path}-mark`, { recursive: true });
    expect(await titlesOf(path)).toEqual(["a", "b"]);
  });

  test.each([
    ["a folder", (mark: string) => mkdirSync(mark)],
    ["a symbolic link", (mark: string) => symlinkSync(newFile("precious"), mark)],
    ["not a regular file", (mark: string) => expect(Bun.spawnSync(["mkfifo", mark]).exitCode).toBe(0)],
  ])("reports a mark that is %s, and does not use it", async (what, make) => {
    const path = newPath();
    await insert(path, "a");
    rmSync(`${path}-mark`);
    make(`${path}-mark`);
    const found = what === "not a regular file" ? what : `${what}, not a file`;
    const reason = `it is ${found}: move ${path}-mark away`;
    expect([await start(path)].flat().toSorted()).toEqual([
      `${path}-mark cannot be read: ${reason}`,
      `the high-water mark cannot be written: ${reason}`,
    ]);
    if (what === "a symbolic link") expect(readFileSync(`${path}-mark`, "utf8")).toBe("precious");
  });

  test("creates only files that other users cannot read", async () => {
    const path = newPath();
    const store = await openSqlite(path);
    await store.insert("a");
    const modes = ["", "-wal", "-shm", "-mark", "-lock"].map(
      (suffix) => statSync(path + suffix).mode & 0o777,
    );
    await store.close();
    expect(modes).toEqual(Array(5).fill(0o600));
    chmodSync(path, 0o640);
    await insert(path, "b");
    expect(statSync(path).mode & 0o777).toBe(0o640);
  });

  test("writes a mark that was removed while it runs", async () => {
    const path = newPath();
    const store = await openSqlite(path);
    await store.insert("a");
    rmSync(`${path}-mark`);
    await store.insert("b");
    await store.close();
    expect(await start(path)).toEqual([]);
  });

  test("does not write over the mark of a store that was restored while it runs", async () => {
    const [path, elsewhere, sound, file] = [newPath(), newPath(), newPath(), newPath()];
    await insert(sound, "restored");
    await backup(sound, file, { signal });
    const store = await openSqlite(path);
    for (const title of ["a", "b"]) await store.insert(title);
    for (const suffix of ["", "-wal", "-shm", "-lock", "-mark"])
      renameSync(path + suffix, elsewhere + suffix);
    await restore(path, file, { signal });
    const mark = readFileSync(`${path}-mark`);
    await refusalOf(store);
    await store.close();
    expect(readFileSync(`${path}-mark`)).toEqual(mark);
    expect(await titlesOf(path)).toEqual(["restored"]);
  });

  test("warns of the mark of another store, and does not write over it", async () => {
    const [path, other] = [newPath(), newPath()];
    await insert(other, "other");
    const warnings: string[] = [];
    const store = await openSqlite(path, { onWarning: (message) => warnings.push(message) });
    await store.insert("a");
    rmSync(`${path}-mark`);
    copyFileSync(`${other}-mark`, `${path}-mark`);
    await store.close();
    expect(readFileSync(`${path}-mark`)).toEqual(readFileSync(`${other}-mark`));
    expect(warnings).toEqual([
      `the high-water mark cannot be written: it is that of another store: move ${path}-mark away`,
    ]);
  });

  test("has each change of its API keys in the mark when it acknowledges it", async () => {
    const path = newPath();
    const store = await openSqlite(path);
    for (let transactions = 1; transactions <= 10; transactions++) {
      await createKey(store.keys, `ci ${transactions}`, undefined, NOW);
      expect(readMark(path)).toEqual({ id: store.id ?? "", transactions });
    }
    await store.close();
  });

  test("has each of several simultaneous changes in the mark when it acknowledges it", async () => {
    const path = newPath();
    const store = await openSqlite(path);
    let acknowledged = 0;
    const acknowledge = async (write: Awaitable<unknown>): Promise<void> => {
      await write;
      const mark = readMark(path);
      expect(typeof mark === "string" ? mark : mark.transactions).toBeGreaterThanOrEqual(++acknowledged);
    };
    await Promise.all([
      acknowledge(createKey(store.keys, "ci 1", undefined, NOW)),
      acknowledge(createKey(store.keys, "ci 2", undefined, NOW)),
      acknowledge(store.insert("a")),
    ]);
    await store.close();
  });

  test("counts changes of API keys, also those of another process", async () => {
    for (const change of ["served", "beside"]) {
      const path = newPath();
      await insert(path, "a");
      copyFileSync(path, `${path}.old`);
      if (change === "served") {
        const store = await openSqlite(path);
        await createKey(store.keys, "ci", undefined, NOW);
        await store.close();
      } else {
        const { keys, close } = openSqliteKeys(path, {
          createIfMissing: false,
          onWarning: expect.unreachable,
        });
        await createKey(keys, "ci", undefined, NOW);
        await close();
      }
      copyFileSync(`${path}.old`, path);
      expect(await start(path)).toContain("its last transaction is missing");
    }
  });

  test("reports a clock that is behind the newest stored time", async () => {
    const path = newPath();
    const store = await openSqlite(path, { now: () => NOW });
    await store.insert("a", "key");
    await store.close();
    expect(await start(path, () => NOW)).toEqual([]);
    expect(await start(path, () => NOW - 1000)).toEqual([
      "the clock (2026-01-01T23:59:59.000Z) is behind the newest stored time (2026-01-02T00:00:00.000Z): set the clock",
    ]);
  });
});

test("writeMark does not lower a mark", () => {
  const path = newFile("");
  for (const transactions of [3, 2])
    expect(writeMark(path, { id: "0123456789abcdef", transactions })).toBeUndefined();
  expect(readFileSync(`${path}-mark`, "utf8")).toStartWith("0123456789abcdef 0000000000000003 ");
});

test("openSqliteKeys refuses a store that is behind its mark", async () => {
  const path = await behindStore();
  expect(() => openSqliteKeys(path, { createIfMissing: true, onWarning: expect.unreachable })).toThrow(
    "its last 2 transactions are missing",
  );
});

test.each<[what: string, run: (path: string) => Promise<unknown>]>([
  ["migrateFile", migrateFile],
  ["probeSqlite", probeSqlite],
])("%s refuses a store that is behind its mark, and keeps its WAL", async (_what, run) => {
  const path = await killedStore();
  const wal = readFileSync(`${path}-wal`);
  wal.writeUInt8(wal.readUInt8(wal.length - 100) ^ 1, wal.length - 100);
  writeFileSync(`${path}-wal`, wal);
  const database = readFileSync(path);
  expect((await errorOf(run(path))).message).toBe(
    `${path}: its last transaction is missing, with one or more acknowledged changes: ${recoveryHint(path)}`,
  );
  expect([readFileSync(path), readFileSync(`${path}-wal`)]).toEqual([database, wal]);
});

test("probeSqlite changes neither the database nor its WAL", async () => {
  for (const hasMark of [true, false]) {
    const path = await killedStore();
    if (!hasMark) rmSync(`${path}-mark`);
    const before = [readFileSync(path), readFileSync(`${path}-wal`)];
    await probeSqlite(path);
    expect([readFileSync(path), readFileSync(`${path}-wal`)]).toEqual(before);
  }
});

describe("acceptLoss", () => {
  test("makes it another store, after which the server starts", async () => {
    const path = await behindStore();
    const { loss, position } = await acceptLoss(path);
    expect(loss).toStartWith("its last 2 transactions are missing");
    const store = await openSqlite(path, { onWarning: expect.unreachable });
    expect(await store.position()).toEqual(position);
    expect(position.sequence).toBe(1);
    expect((await store.insert("d")).id).toBe(2n);
    await store.close();
    copyFileSync(`${path}.old`, path);
    expect(await start(path)).toContain("another store");
  });

  test("does not hide the loss if it fails", async () => {
    const path = await behindStore();
    const database = new Database(path);
    database.run(
      "CREATE TRIGGER failing BEFORE UPDATE OF id ON store BEGIN SELECT RAISE(ABORT, 'no write'); END",
    );
    database.close();
    expect((await errorOf(acceptLoss(path))).message).toContain("no write");
    expect(await start(path)).toContain("its last 2 transactions are missing");
  });

  test("creates an empty store in place of a missing one", async () => {
    const path = newPath();
    await insert(path, "a");
    rmSync(path);
    await acceptLoss(path);
    expect(await titlesOf(path)).toEqual([]);
  });

  test("refuses a store that has lost nothing", async () => {
    const path = newPath();
    expect(await acceptLoss(path).catch((error) => error.message)).toBe(
      `${path} does not exist: check the path of the store`,
    );
    await insert(path, "a");
    expect(await acceptLoss(path).catch((error) => error.message)).toBe(
      `${path} has all changes that its high-water mark counts: start the server`,
    );
  });

  test.each([
    ["a wrong checksum", `UPDATE todos SET json = replace(json, '"a"', '"b"')`, "differ from their checksum"],
    ["an invalid title", "UPDATE todos SET json = 'x'", "1 of its to-dos are invalid"],
  ])("names the recovery commands for %s, which the mark does not detect", async (_what, sql, reason) => {
    for (const hasMark of [true, false]) {
      const path = newPath();
      await insert(path, "a");
      const database = new Database(path);
      database.run(sql);
      database.close();
      if (!hasMark) rmSync(`${path}-mark`);
      const said = await acceptLoss(path).catch((error) => error.message);
      expect(said).toStartWith(`${path}: it is damaged (`);
      expect(said).toContain(reason);
      expect(said).toEndWith(
        "restore a backup with todo restore, or save what can be read with todo export --skip-damaged",
      );
    }
  });

  test("refuses another program's database", async () => {
    const path = newPath();
    const database = new Database(path);
    database.run("CREATE TABLE x (y)");
    database.close();
    expect(await acceptLoss(path).catch((error) => error.message)).toBe(
      `${path}: it is the database of another program: name another file`,
    );
  });

  test("refuses a damaged store", async () => {
    const path = newPath();
    await insert(path, "a");
    truncateSync(path, 5000);
    const said = await acceptLoss(path).catch((error) => error.message);
    expect(said).toStartWith(`${path}: `);
    expect(said).toContain("malformed");
  });
});

test("restore reports a mark that is a folder, and recommends to move it", async () => {
  const [path, sound, file] = [newPath(), newPath(), newPath()];
  await insert(sound, "a");
  await backup(sound, file, { signal });
  mkdirSync(`${path}-mark`);
  expect(await restore(path, file, { signal }).catch((error) => error.message)).toBe(
    `${path}-mark is a folder, not a file: move it away`,
  );
  expect(existsSync(path)).toBe(false);
});

test("restore moves a store that has lost changes aside, and rewrites the mark", async () => {
  const [path, sound, file] = [await behindStore(), newPath(), newPath()];
  await insert(sound, "a");
  await backup(sound, file, { signal });
  const { movedTo = "" } = await restore(path, file, { signal });
  expect(movedTo).toMatch(/\.db\.\d{8}T\d{9}Z$/);
  expect(globSync(`${movedTo}*`).toSorted()).toEqual([movedTo, `${movedTo}-mark`]);
  expect(await start(movedTo)).toContain("its last 2 transactions are missing");
  expect(await start(path)).toEqual([]);
  expect(await titlesOf(path)).toEqual(["a"]);
  copyFileSync(movedTo, path);
  expect(await start(path)).toContain("another store");
});

test("import refuses a missing store that has a mark, and rewrites the mark of an empty one", async () => {
  const [path, lost] = [newPath(), newPath()];
  const work = { signal };
  async function* lines() {
    yield Buffer.from('{"id":1,"title":"imported","done":false}\n');
  }
  await insert(lost, "a");
  rmSync(lost);
  expect(await importTodos(lost, lines(), 10, work).catch((error) => error.message)).toContain(
    "it is missing",
  );

  await insert(path);
  const empty = readFileSync(path);
  await importTodos(path, lines(), 10, work);
  expect(await start(path)).toEqual([]);
  writeFileSync(path, empty);
  expect(await start(path)).toContain("another store");
});
