import { Database } from "bun:sqlite";
import { afterAll, describe, expect, test } from "bun:test";
import {
  chmodSync,
  copyFileSync,
  existsSync,
  globSync,
  mkdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { crc32 } from "node:zlib";
import { skipFor } from "../../../test/skip.ts";
import { eachEvent } from "../../../test/store.ts";
import { read } from "../../../test/store-contract.ts";
import { copiesOf, storePathsIn } from "../../../test/temporary.ts";
import type { StoredKey } from "../../credential/key.ts";
import { errorMessage } from "../../error-message.ts";
import { encodeTodo } from "../../todo.ts";
import { openSqliteKeys } from "./keys.ts";
import { backup, check, exportTodos, importTodos, migrate, probeSqlite, restore } from "./maintenance.ts";
import { restoreCommand } from "./rescue.ts";
import { openSqlite } from "./store.ts";

const newPath = storePathsIn();
const { signal } = new AbortController();

const key = (name: string): StoredKey => ({
  id: `id of ${name}`,
  name,
  tokenHash: new Uint8Array(32).fill(name.charCodeAt(0)),
  scope: "read",
  createdAt: 1,
});

/** Creates a store with data of every kind: four to-dos, an idempotency key and three API keys. */
const stopped = copiesOf(newPath, async (path) => {
  const store = await openSqlite(path);
  for (const title of ["a", "b", "😀"]) await store.insert(title);
  await store.insert("once", "key of the client");
  await store.setDone(2n, true);
  for (const name of ["alice", "bob"]) await store.keys.insert(key(name));
  await store.keys.insert({ ...key("zoe"), scope: "write" });
  await store.close();
});

/** Creates a store as a killed server leaves it, with three to-dos in the WAL. */
const killed = copiesOf(newPath, async (path) => {
  const running = newPath();
  const store = await openSqlite(running);
  // While another connection reads, no checkpoint can empty the WAL, however slow the machine is.
  using reader = new Database(running, { readonly: true });
  reader.run("BEGIN");
  reader.query("SELECT count(*) FROM todos").get();
  for (const title of ["a", "b", "c"]) await store.insert(title);
  for (const suffix of ["", "-wal", "-mark"]) copyFileSync(running + suffix, path + suffix);
  await store.close();
});

const behind = copiesOf(newPath, async (path) => {
  await insert(path, "a");
  const old = readFileSync(path);
  await insert(path, "b", "c");
  writeFileSync(path, old);
});

const missing = async (): Promise<string> => newPath();

async function insert(path: string, ...titles: readonly string[]): Promise<void> {
  const store = await openSqlite(path);
  for (const title of titles) await store.insert(title);
  await store.close();
}

const sql =
  (...statements: readonly string[]) =>
  (path: string): void => {
    using database = new Database(path);
    for (const statement of statements) database.run(statement);
  };

const bytes =
  (change: (bytes: Buffer) => unknown, suffix = "") =>
  (path: string): void => {
    const found = readFileSync(path + suffix);
    change(found);
    writeFileSync(path + suffix, found);
  };

/** Replaces the only occurrence of a text in the pages of the table `keys`, and not in those of its index. */
const inTable = (found: Buffer): unknown => found.fill(0xee, found.indexOf(key("bob").tokenHash) + 31).length;

function intactRow(id: number, title: string): string {
  const json = encodeTodo({ id: BigInt(id), title, done: false });
  return `'${json}', crc = ${crc32(json)} WHERE id = ${id}`;
}

/** Returns why a command fails; `undefined` if it succeeds. */
const COMMANDS: Readonly<Record<string, (path: string) => unknown>> = {
  serve: async (path) => (await openSqlite(path)).close(),
  keys: (path) => {
    const { keys, close } = openSqliteKeys(path, { createIfMissing: true });
    return Promise.try(() => keys.insert(key("carol"))).finally(close);
  },
  doctor: probeSqlite,
  backup: async (path) => {
    const file = newPath();
    await backup(path, file, { signal }).finally(() => expect(globSync(`${file}*`)).toEqual([]));
  },
  export: (path) => exportTodos(path, async () => {}, { signal }),
  import: (path) => importTodos(path, lines(), 10, { signal }),
  migrate,
  check: async (path) => {
    const damaged = (await check(path)).filter(({ isSound }) => !isSound);
    if (damaged.length > 0) throw new Error(damaged.map(({ detail }) => detail).join("; "));
  },
  "restore from it": async (path) => {
    const restored = newPath();
    await restore(restored, path, { signal }).finally(() => expect(globSync(`${restored}*`)).toEqual([]));
  },
};

const lines = () => new Blob(['{"id":1,"title":"imported","done":false}\n']).stream();

const outcomeOf = async (name: string, path: string): Promise<string | undefined> => {
  try {
    await COMMANDS[name]?.(path);
    return undefined;
  } catch (error) {
    return errorMessage(error);
  }
};

/** An empty WAL has no changes. */
const filesOf = (path: string): Record<string, string> =>
  Object.fromEntries(
    ["", "-wal", "-mark"]
      .filter((suffix) => existsSync(path + suffix) && statSync(path + suffix).size > 0)
      .map((suffix) => [suffix, readFileSync(path + suffix, "latin1")]),
  );

type Injury = readonly [
  what: string,
  store: () => Promise<string>,
  injure: (path: string) => unknown,
  said: string,
  noticedBy: readonly string[],
];

const EMPTY_NOTICED_BY = ["doctor", "backup", "export", "migrate", "check", "restore from it"];
const USERS = ["serve", "keys", "doctor", "backup", "export", "import", "check"];
const READERS = [...USERS, "restore from it"];
const IN_PLACE = [...USERS, "migrate"];
const ANY_FORMAT = [...IN_PLACE.filter((name) => name !== "check"), "restore from it"];
const ALL = Object.keys(COMMANDS);
const CREATORS = ["serve", "import"];

const rows = (said: string, changes: Readonly<Record<string, string>>) =>
  Object.entries(changes).map(([what, change]): Injury => [what, stopped, sql(change), said, READERS]);
const put = (suffix: string, contents: string | Uint8Array) => (path: string) =>
  writeFileSync(path + suffix, contents);
const remove = (suffix: string) => (path: string) => rmSync(path + suffix);
const createDatabase = (statements: string) => (path: string) =>
  new Database(path, { create: true }).run(statements);
const nothing = () => {};
const TEXT = "not a database, ".repeat(100);

const FOREIGN = "it is the database of another program: name another file";
const FOREIGN_LOCK = "has the contents of another program: remove ";
const EMPTY = "it is empty: check the path of the store, or restore a backup with todo restore";
const NO_FOLDER = "check that its folder exists, and that its disk is mounted";
const NO_DATABASE = "file is not a database: name another file; if it was a store, put the right files back";
const NO_CHANGES =
  "its last 2 changes are missing: put the right files back, restore a backup with todo restore, or remove";
const OTHER_FORMAT =
  "it was written by another version of this program (format 99; this version has format 3): use that version";
const BESIDE_WAL = "-wal: put the right files back, restore a backup with todo restore, or move ";
const BESIDE_RESCUE =
  "which has what a server held at 2026-01-02 00:00 UTC, restore a backup with todo restore, or move ";
const RESCUE = ".rescue-20260102T000000000Z.ndjson";

const noFolder = async () => join(newPath(), "todos.db");
const breakSchema = bytes((found) => found.write("`", found.indexOf("BLOB N") + 5));
const halve = (path: string) => truncateSync(path, statSync(path).size / 2);
const removeWithMark = (path: string) => ["", "-mark"].map((suffix) => rmSync(path + suffix));

const INJURIES: readonly Injury[] = [
  ...rows("is damaged", {
    "another title": `UPDATE todos SET json = replace(json, '"a"', '"c"') WHERE id = 1`,
    "another state": "UPDATE todos SET json = replace(json, 'false', 'true') WHERE id = 1",
    "exchanged titles": `UPDATE todos SET json = CASE id WHEN 1 THEN replace(json, '"a"', '"b"') ELSE replace(json, '"b"', '"a"') END WHERE id < 3`,
    "another id": "UPDATE todos SET id = 5 WHERE id = 4",
    "another id above 2^53": "UPDATE todos SET id = 9007199254740995 WHERE id = 4",
    "an empty text under the id 0": "INSERT INTO todos VALUES (0, '', 0)",
    "a to-do that is no JSON": "UPDATE todos SET json = 'a' WHERE id = 1",
    "an additional to-do": `INSERT INTO todos VALUES (9, '{"id":9,"title":"c","done":false}', 0)`,
  }),
  ...rows("to-dos or API keys are missing or old", {
    "a missing to-do": "DELETE FROM todos WHERE id = 1",
    "an old to-do, as on an old page": `UPDATE todos SET json = ${intactRow(1, "old")}`,
    "a missing API key": "DELETE FROM keys WHERE name = 'bob'",
  }),
  ...rows("an API key is damaged", {
    "another name of an API key": "UPDATE keys SET name = 'carol' WHERE name = 'bob'",
    "another token hash": "UPDATE keys SET token_hash = zeroblob(32) WHERE name = 'bob'",
    "another scope of an API key": "UPDATE keys SET scope = 'write' WHERE name = 'bob'",
    "an unknown scope of an API key": "UPDATE keys SET scope = 'admin' WHERE name = 'zoe'",
    "an expired API key": "UPDATE keys SET expires_at = 2 WHERE name = 'bob'",
    "an API key of no date": "UPDATE keys SET created_at = -9e15 WHERE name = 'bob'",
    "another last use of an API key": "UPDATE keys SET last_used_at = 5",
  }),
  ...rows("its counters are damaged", {
    "another id of the store": "UPDATE store SET id = 'x'",
    "another epoch": "UPDATE store SET epoch = 'x'",
    "another last id": "UPDATE store SET last_id = 7",
    "another position": "UPDATE store SET sequence = sequence + 1",
    "another checksum": "UPDATE store SET checksum = checksum + 1",
    "another number of changes to API keys": "UPDATE store SET key_changes = 0",
    "no counters": "DELETE FROM store",
    "two rows of counters": "INSERT INTO store SELECT * FROM store",
  }),
  ["no folder", noFolder, nothing, NO_FOLDER, ["serve", "keys", "doctor", "import"]],
  ["a token hash that differs from its index", stopped, bytes(inTable), "is damaged", READERS],
  ["damaged pages", stopped, bytes((found) => found.fill(0xee, 4096)), "it is damaged (", READERS],
  ["a missing end", stopped, (path) => truncateSync(path, 5000), "malformed", ANY_FORMAT],
  ["a damaged schema", stopped, breakSchema, "malformed database schema", ALL],
  ["text instead of a database", stopped, put("", TEXT), NO_DATABASE, ALL],
  ["zeros at the start", stopped, bytes((found) => found.fill(0, 0, 4096)), "file is not a database", ALL],
  ["another format", stopped, sql("PRAGMA user_version = 99"), OTHER_FORMAT, ALL],
  ["another program's database", missing, createDatabase("CREATE TABLE notes (text)"), FOREIGN, ALL],
  [
    "another program's database of the same user_version",
    missing,
    createDatabase("CREATE TABLE todos (x); PRAGMA user_version = 3"),
    FOREIGN,
    ALL,
  ],
  ["an old copy of the database", behind, nothing, NO_CHANGES, READERS],
  [
    "another store",
    stopped,
    async (path) => copyFileSync(await killed(), path),
    "it is another store than that of",
    READERS,
  ],
  ["no WAL after a crash", killed, remove("-wal"), "its last 3 changes are missing", READERS],
  [
    "a damaged end of the WAL",
    killed,
    bytes((found) => found.fill(1, found.length - 100), "-wal"),
    "its last change is missing",
    USERS,
  ],
  ["half of the WAL", killed, (path) => halve(`${path}-wal`), "missing", USERS],
  ["no database beside its mark", stopped, remove(""), "it is missing or empty, but there is ", IN_PLACE],
  ["an empty database beside its mark", stopped, put("", ""), "to start with an empty list", IN_PLACE],
  ["an empty file", missing, put("", ""), EMPTY, EMPTY_NOTICED_BY],
  ["a database of SQLite without tables", missing, createDatabase("VACUUM"), EMPTY, EMPTY_NOTICED_BY],
  ["no database beside its WAL", killed, removeWithMark, BESIDE_WAL, IN_PLACE],
  ["no database beside a rescue file", missing, put(RESCUE, ""), BESIDE_RESCUE, IN_PLACE],
  ["text as a lock", missing, put("-lock", TEXT), FOREIGN_LOCK, CREATORS],
  ["a torn lock", missing, put("-lock", "SQLite form"), FOREIGN_LOCK, CREATORS],
  ["zeros as a lock after a power cut", missing, put("-lock", Buffer.alloc(4096)), FOREIGN_LOCK, CREATORS],
];

describe("a store with", () => {
  test.each(INJURIES)(
    "%s is refused unchanged by each command that notices it, and moved aside by a restore, after which a server starts",
    async (what, store, injure, said, noticedBy) => {
      const path = await store();
      await injure(path);
      const before = filesOf(path);
      for (const name of noticedBy) {
        const message = await outcomeOf(name, path);
        expect([name, message]).toEqual([name, expect.stringContaining(said)]);
        expect([name, message]).toEqual([name, expect.not.stringContaining("\n")]);
        expect([name, filesOf(path)]).toEqual([name, before]);
      }
      if (/no folder|another program|lock/.test(what)) return;
      const { movedTo } = await restore(path, await sound(), { signal });
      if (movedTo !== undefined) expect(filesOf(movedTo)).toEqual(before);
      const isNew = before[""] === undefined && movedTo === undefined;
      expect(await warningsOf(path)).toEqual(isNew ? expect.any(Array) : []);
      expect(await titlesOf(path)).toEqual(["a", "b", "😀", "once"]);
    },
  );
});

const whyWritable = process.getuid?.() === 0 ? "root may read every file" : undefined;
describe.skipIf(skipFor(whyWritable))("a store whose file cannot be written", () => {
  const all = ["serve", "keys", "doctor", "import"];
  test.each<[name: string, refusing: readonly string[]]>([
    ["todos.db", all],
    ["todos.db-wal", all],
    // SQLite replaces it, because no other process uses it.
    ["todos.db-shm", ["serve", "doctor", "import"]],
    ["todos.db-lock", all],
    ["todos.db-mark", all],
  ])("is refused by each command that writes, which changes nothing: %s", async (name, refusing) => {
    const path = await killed();
    for (const suffix of ["-shm", "-lock"]) writeFileSync(path + suffix, "");
    const file = name.replace("todos.db", path);
    chmodSync(file, 0o444);
    const before = filesOf(path);
    for (const command of refusing)
      expect([command, await outcomeOf(command, path)]).toEqual([
        command,
        `${path}: you have no permission to write ${file}: change its permissions, or use the account of the server`,
      ]);
    expect(filesOf(path)).toEqual(before);
  });

  test("can be checked, which leaves no files that keep the server from starting", async () => {
    const path = await stopped();
    chmodSync(path, 0o444);
    expect([await outcomeOf("check", path), globSync(`${path}-{wal,shm}`)]).toEqual([undefined, []]);
  });
});

const sound = copiesOf(newPath, async (path) => {
  await backup(await stopped(), path, { signal });
});

async function warningsOf(path: string): Promise<readonly string[]> {
  const warnings: string[] = [];
  await (await openSqlite(path, { onWarning: (message) => warnings.push(message) })).close();
  return warnings;
}

async function titlesOf(path: string): Promise<string[]> {
  const store = await openSqlite(path);
  const { todos } = await read(await store.list({}));
  await store.close();
  return todos.map(({ title }) => title);
}

describe("a start", () => {
  test("accepts the store of a killed server", async () => {
    expect(await titlesOf(await killed())).toEqual(["a", "b", "c"]);
  });

  test("names the newest rescue file before a backup", async () => {
    const path = await behind();
    for (const day of [1, 2]) writeFileSync(`${path}.rescue-2026010${day}T000000000Z.ndjson`, "");
    const file = `${path}.rescue-20260102T000000000Z.ndjson`;
    expect(await outcomeOf("serve", path)).toContain(
      `put the right files back, run ${restoreCommand(file, path)}, which has what a server held at 2026-01-02 00:00 UTC, restore a backup`,
    );
  });

  test("that needs no rescue file renames it, so that no later message names it", async () => {
    const path = await stopped();
    const rescue = `${path}.rescue-20260101T000000000Z.ndjson`;
    writeFileSync(rescue, "{}");
    expect(await warningsOf(path)).toEqual([
      `this start does not need ${rescue}, which has what a server held at 2026-01-01 00:00 UTC: it is now ${rescue}.old; restore it only if to-dos are missing`,
    ]);
    expect(readFileSync(`${rescue}.old`, "utf8")).toBe("{}");
  });

  test("goes on with a store that has lost changes if its mark is removed, as the message says", async () => {
    const path = await behind();
    const [, file = ""] =
      /or remove '?(.+-mark)'? to go on/.exec((await outcomeOf("serve", path)) ?? "") ?? [];
    rmSync(file);
    expect(await warningsOf(path)).toEqual([expect.stringContaining("its last changes are missing")]);
    expect(await titlesOf(path)).toEqual(["a"]);
  });

  const folder = (mark: string): void => {
    rmSync(mark);
    mkdirSync(mark);
  };
  const link = (mark: string): void => {
    const target = newPath();
    writeFileSync(target, "precious");
    rmSync(mark);
    symlinkSync(target, mark);
    afterAll(() => expect(readFileSync(target, "utf8")).toBe("precious"));
  };
  const fifo = (mark: string): void => {
    rmSync(mark);
    expect(Bun.spawnSync(["mkfifo", mark]).exitCode).toBe(0);
  };
  test.each<[what: string, change: (mark: string) => void]>([
    ["missing", (mark) => rmSync(mark)],
    ["empty", (mark) => truncateSync(mark)],
    ["torn", (mark) => truncateSync(mark, 20)],
    ["a folder", folder],
    ["a symbolic link", link],
    ["a pipe", fifo],
  ])("warns of a mark that is %s, as beside a copy that may lack changes", async (_what, change) => {
    const path = await stopped();
    change(`${path}-mark`);
    expect(await warningsOf(path)).toEqual([
      `${path}-mark is missing or damaged, as beside a copy: if a server was writing when the file was copied, its last changes are missing`,
    ]);
    expect(await titlesOf(path)).toHaveLength(4);
  });

  test("a copy of the file of a new store that lacks its first write is restored, checked and served with the same warning", async () => {
    const [path, file] = [newPath(), newPath()];
    const store = await openSqlite(path);
    await store.insert("in the WAL");
    copyFileSync(path, file);
    await store.close();
    const warning = expect.stringContaining(`${file}-mark is missing or damaged, as beside a copy`);
    expect(await restore(newPath(), file, { signal })).toMatchObject({ todos: 0, warning });
    expect((await check(file)).at(-1)).toEqual({ name: "mark", isSound: true, detail: warning });
    expect(await warningsOf(file)).toEqual([warning]);
  });

  test("a copy with a newer mark is not restored", async () => {
    const file = await stopped();
    writeFileSync(`${file}-mark`, readFileSync(`${file}-mark`, "utf8").replace(/\d+\n/, "99\n"));
    const refused = restore(newPath(), file, { signal }).catch(errorMessage);
    expect(await refused).toContain("changes are missing");
  });

  test("does not warn of an older mark, nor of the missing mark of a new store, a backup or an import", async () => {
    const [old, fresh, imported] = [await stopped(), newPath(), newPath()];
    const mark = readFileSync(`${old}-mark`);
    await insert(old, "more");
    writeFileSync(`${old}-mark`, mark);
    await importTodos(imported, lines(), 10, { signal });
    for (const path of [old, fresh, await sound(), imported]) expect(await warningsOf(path)).toEqual([]);
  });

  test("creates only files that other users cannot read, and keeps the mode of an existing one", async () => {
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
});

test.each([
  ["a changed title", "UPDATE events SET events = replace(events, 'done', 'gone') WHERE last_sequence = 2"],
  ["a changed epoch", "UPDATE events SET epoch = '0123456789abcdef' WHERE last_sequence = 5"],
  ["a changed position", "UPDATE events SET last_sequence = 6 WHERE last_sequence = 5"],
  ["a missing row", "DELETE FROM events WHERE last_sequence = 2"],
  ["no last row", "DELETE FROM events WHERE last_sequence = 5"],
])("a store starts without damaged events and those before them: %s", async (_what, change) => {
  const path = await stopped();
  sql(change)(path);
  expect((await check(path)).filter(({ isSound }) => !isSound)).toEqual([
    { name: "history", isSound: false, detail: expect.stringContaining("events") },
  ]);
  const warnings: string[] = [];
  const store = await openSqlite(path, { onWarning: (message) => warnings.push(message) });
  expect(warnings).toEqual([expect.stringContaining("load the list again")]);
  const { todos, position } = await read(await store.list({}));
  expect([todos.length, position.sequence]).toEqual([4, 5]);
  expect(await Array.fromAsync(eachEvent(store, { ...position, sequence: 1 }))).toEqual([]);
  await store.insert("later");
  expect((await eachEvent(store, position).next()).value?.position.sequence).toBe(6);
  await store.close();
});

test.each(["id = 3", "title_hash = key_hash", "created_at = created_at + 1", "key_hash = 'x'"])(
  "a store starts without a damaged idempotency key, which leaves the file: %s",
  async (change) => {
    const path = await stopped();
    sql(`UPDATE idempotency_records SET ${change}`)(path);
    expect((await check(path)).filter(({ isSound }) => !isSound)).toEqual([
      { name: "history", isSound: false, detail: "1 idempotency keys are damaged" },
    ]);
    const warnings: string[] = [];
    const store = await openSqlite(path, { onWarning: (message) => warnings.push(message) });
    expect(warnings).toEqual([
      "1 damaged idempotency keys are not used: a repeated request may create a second to-do",
    ]);
    expect((await store.insert("once", "key of the client")).id).toBe(5n);
    await store.close();
    expect((await check(path)).map(({ detail }) => detail)).toEqual(Array(4).fill("ok"));
  },
);

test("the checksum matches the contents after changes to API keys by the server and by a command", async () => {
  const path = await stopped();
  const server = await openSqlite(path);
  const beside = openSqliteKeys(path, { createIfMissing: false });
  for (const { keys } of [server, beside]) {
    const name = keys === server.keys ? "carol" : "dave";
    expect(await keys.insert(key(name))).toBe(true);
    expect(await keys.insert(key(name))).toBe(false);
    await keys.recordUse(key(name).id, 7);
    const successor = {
      ...key(name),
      id: `${name}'s second`,
      tokenHash: new Uint8Array(32).fill(name.length),
    };
    expect(await keys.replace(key(name).id, 9, successor)).toBe(true);
    expect(await keys.delete(key(name).id)).toBe(true);
    expect(await keys.delete("missing")).toBe(false);
    await server.insert("between");
  }
  await beside.close();
  await server.close();
  expect(await warningsOf(path)).toEqual([]);
  expect(globSync(`${path}.rescue-*`)).toEqual([]);
});
