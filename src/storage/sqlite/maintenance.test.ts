import { Database } from "bun:sqlite";
import { describe, expect, test } from "bun:test";
import {
  chmodSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  readFileSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { errorOf } from "../../../test/rejection.ts";
import { eachEvent, exportOf } from "../../../test/store.ts";
import { read } from "../../../test/store-contract.ts";
import { copiesOf, filesAt, storePathsIn, temporaryFolder } from "../../../test/temporary.ts";
import type { StoredKey } from "../../credential/key.ts";
import { PreconditionError } from "../maintenance.ts";
import { encodeKey } from "../ndjson.ts";
import { openDatabase } from "./database.ts";
import { backup, backupInBackground, exportTodos, importTodos, restore } from "./maintenance.ts";
import { openSqlite } from "./store.ts";

const folder = temporaryFolder();
const newPath = storePathsIn(folder);

const { signal } = new AbortController();
const KEY: StoredKey = {
  id: "k1",
  name: "alice",
  tokenHash: new Uint8Array(32).fill(7),
  scope: "read",
  createdAt: 1,
};

/** Creates a store with data of every kind: four ids assigned, two to-dos left. */
const makeStore = copiesOf(newPath, async (path) => {
  const store = await openSqlite(path);
  for (const title of ["a", "deleted\u0000title", "😀\u2028"]) await store.insert(title);
  await store.insert("once", "key of the client");
  await store.setDone(3n, true);
  await store.delete(2n);
  await store.delete(1n);
  await store.keys.insert(KEY);
  await store.close();
});

async function makeBackup(): Promise<string> {
  const file = newPath();
  await backup(await makeStore(), file, { signal });
  return file;
}

async function refusal(work: Promise<unknown>): Promise<string | undefined> {
  try {
    await work;
  } catch (error) {
    if (error instanceof PreconditionError) return error.message;
    throw error;
  }
  return undefined;
}

test("restore copies the complete backup and starts a new epoch", async () => {
  const path = await makeStore();
  const [file, copy] = [newPath(), newPath()];
  const saved = await backup(path, file, { signal });
  const restored = await restore(copy, file, { signal });
  const [first, second] = [await openSqlite(path), await openSqlite(copy)];

  const before = await read(await first.list({}));
  expect(before.todos.map(({ id }) => id)).toEqual([3n, 4n]);
  expect(saved).toEqual({ todos: 2, keys: 1, bytes: statSync(file).size, position: before.position });
  const after = await read(await second.list({}));
  expect(after.todos).toEqual(before.todos);
  expect(restored).toEqual({
    todos: 2,
    keys: 1,
    bytes: statSync(copy).size,
    position: after.position,
    movedTo: undefined,
    warning: undefined,
  });
  expect(after.position).toEqual({
    epoch: expect.stringMatching(/^[0-9a-f]{16}$/),
    sequence: before.position.sequence,
  });
  expect(after.position.epoch).not.toBe(before.position.epoch);

  expect((await second.insert("once", "key of the client")).id).toBe(4n);
  expect((await second.insert("e")).id).toBe(5n);
  expect(await second.keys.list()).toEqual(await first.keys.list());
  expect(await second.keys.find(KEY.tokenHash)).toEqual(KEY);
  const told = eachEvent(second, { ...after.position, sequence: 0 });
  expect(await told.next()).toEqual({ done: true, value: undefined });
  await Promise.all([first.close(), second.close()]);
});

test("every backup and restore has a new id and a new epoch", async () => {
  const file = await makeBackup();
  const paths = [newPath(), newPath()];
  for (const path of paths) await restore(path, file, { signal });
  const rows = [file, ...paths].map((path) => {
    using database = openDatabase(path, "write");
    return database.query("SELECT id, epoch FROM store").values().flat();
  });
  expect(new Set(rows.flat()).size).toBe(6);
});

describe("backup", () => {
  test("writes one private file without deleted data", async () => {
    const path = await makeStore();
    expect(readFileSync(path).includes("deleted")).toBe(true);
    const file = newPath();
    await backup(path, file, { signal });
    expect(filesAt(file)).toEqual([""]);
    expect(statSync(file).mode & 0o777).toBe(0o600);
    expect(readFileSync(file).includes("deleted")).toBe(false);
  });

  test("contains the store without the triggers and views of other programs", async () => {
    const path = await makeStore();
    foreign(FOREIGN_OBJECTS)(path);
    const [file, copy] = [newPath(), newPath()];
    expect(await backup(path, file, { signal })).toMatchObject({ todos: 2, keys: 1 });
    expect(await restore(copy, file, { signal })).toMatchObject({ todos: 2, keys: 1 });
    const database = openDatabase(copy, "read");
    const names = database.query("SELECT name FROM sqlite_schema WHERE type IN ('trigger', 'view')").all();
    database.close();
    expect(names).toEqual([]);
  });

  test("never overwrites a file", async () => {
    const path = await makeStore();
    const [file, link] = [newPath(), newPath()];
    writeFileSync(file, "mine");
    expect(await refusal(backup(path, file, { signal }))).toBe(`${file} already exists: name another file`);
    expect([readFileSync(file, "utf8"), filesAt(file)]).toEqual(["mine", [""]]);
    // It leads nowhere: to be seen only when the copy is put in its place, as is what appears meanwhile.
    symlinkSync(join(folder, "nowhere"), link);
    expect(await refusal(backup(path, link, { signal }))).toBe(`${link} already exists: name another file`);
    expect([filesAt(link), existsSync(join(folder, "nowhere"))]).toEqual([[""], false]);
  });

  test("rejects a file that another backup is writing", async () => {
    const file = newPath();
    writeFileSync(`${file}.part`, "another's");
    expect(await refusal(backup(await makeStore(), file, { signal }))).toBe(
      `another command is writing ${file}.part: if no other command is running, remove ${file}.part`,
    );
    expect(readFileSync(`${file}.part`, "utf8")).toBe("another's");
  });

  test("rejects a missing store or folder", async () => {
    const [path, file] = [newPath(), newPath()];
    expect(await refusal(backup(path, file, { signal }))).toBe(
      `${path} does not exist: check the path of the store`,
    );
    expect(filesAt(path)).toEqual([]);
    expect(await refusal(backup(await makeStore(), "", { signal }))).toBe("the file has no name");
    const lost = join(folder, "no", "folder.db");
    expect(await refusal(backup(await makeStore(), lost, { signal }))).toBe(
      `${lost}.part cannot be created: no such file or folder`,
    );
  });
});

test.each(["backup", "restore"])("%s leaves no files when aborted", async (name) => {
  const [path, reason] = [newPath(), new Error("enough")];
  const options = { signal: AbortSignal.abort(reason) };
  const work =
    name === "backup" ? backup(await makeStore(), path, options) : restore(path, await makeBackup(), options);
  expect(await errorOf(work)).toBe(reason);
  expect(filesAt(path)).toEqual([]);
});

describe("backupInBackground", () => {
  test("returns the summary of the backup", async () => {
    const [path, file] = [await makeStore(), newPath()];
    const { todos, bytes, position } = await backupInBackground(path, file);
    expect([todos, bytes]).toEqual([2, statSync(file).size]);
    const store = await openSqlite(path);
    expect(await store.position()).toEqual(position);
    await store.close();
  });

  test("rejects with the reason of a failed backup", async () => {
    const [missing, file] = [newPath(), newPath()];
    expect((await errorOf(backupInBackground(missing, file))).message).toBe(
      `${missing} does not exist: check the path of the store`,
    );
    expect(filesAt(file)).toEqual([]);
  });
});

const foreign = (sql: string) => (path: string) => {
  const database = new Database(path, { create: true });
  database.run(sql);
  database.close();
};

const FOREIGN_OBJECTS = `
  CREATE TABLE other_table (id INTEGER PRIMARY KEY AUTOINCREMENT, x UNIQUE);
  INSERT INTO other_table (x) VALUES ('other');
  CREATE INDEX other_index ON todos (json);
  CREATE VIEW other_view AS SELECT * FROM todos;
  CREATE TRIGGER other_trigger AFTER INSERT ON todos BEGIN DELETE FROM todos; END;
  ANALYZE`;

describe("restore", () => {
  test.each([
    ["", "SELECT 1"],
    [
      " with tables and indexes of other programs",
      `${FOREIGN_OBJECTS}; DROP TRIGGER other_trigger; DROP VIEW other_view`,
    ],
  ])("accepts the file of a stopped server%s", async (_what, sql) => {
    const [file, path] = [await makeStore(), newPath()];
    foreign(sql)(file);
    expect(await restore(path, file, { signal })).toMatchObject({ todos: 2, keys: 1 });
    expect(filesAt(path)).toEqual([""]);
    const store = await openSqlite(path);
    expect(store.count).toBe(2);
    await store.close();
  });

  test("accepts an export with a byte order mark and blank lines", async () => {
    const file = newPath();
    writeFileSync(file, '\uFEFF\r\n\n{"id":1,"title":"a","done":false}\n');
    expect(await restore(newPath(), file, { signal })).toMatchObject({ todos: 1 });
  });

  test("writes one private file in WAL mode, so the first start needs no rollback journal", async () => {
    const path = newPath();
    const file = await makeBackup();
    chmodSync(file, 0o644);
    await restore(path, file, { signal });
    // The file format version numbers of a database in WAL mode (SQLite file format §1.3.3).
    expect([...readFileSync(path).subarray(18, 20)]).toEqual([2, 2]);
    expect([filesAt(path), filesAt(file)]).toEqual([[""], [""]]);
    expect(statSync(path).mode & 0o777).toBe(0o600);
  });

  test("ignores the files of a restore that was killed", async () => {
    const path = newPath();
    const journal = `${path}.part-journal`;
    const part = new Database(`${path}.part`, { create: true });
    part.run("PRAGMA synchronous = OFF; CREATE TABLE x (y); BEGIN; INSERT INTO x VALUES (1)");
    const abandoned = readFileSync(journal);
    part.close();
    writeFileSync(journal, abandoned);
    expect(await restore(path, await makeBackup(), { signal })).toMatchObject({ todos: 2 });
  });

  test("replaces an empty store and the WAL of its crashed server", async () => {
    const [crashed, path] = [newPath(), newPath()];
    const store = await openSqlite(crashed);
    for (const suffix of ["", "-wal"]) copyFileSync(crashed + suffix, path + suffix);
    await store.close();
    expect(statSync(`${path}-wal`).size).toBeGreaterThan(0);
    await restore(path, await makeBackup(), { signal });
    expect(existsSync(`${path}-wal`)).toBe(false);
    const restored = await openSqlite(path);
    expect((await read(await restored.list({}))).todos).toHaveLength(2);
    await restored.close();
  });

  test.each([
    ['the view "v"', "CREATE VIEW v AS SELECT * FROM todos"],
    ['the trigger "t"', "CREATE TRIGGER t AFTER INSERT ON todos BEGIN DELETE FROM todos; END"],
  ])("rejects a file with %s, and leaves no files", async (what, sql) => {
    const [file, path] = [await makeBackup(), newPath()];
    foreign(sql)(file);
    const before = readFileSync(file);
    const said = await refusal(restore(path, file, { signal }));
    expect(said).toStartWith(`${file}: it has ${what} of another program: remove it`);
    expect([filesAt(path), filesAt(file), readFileSync(file).equals(before)]).toEqual([[], [""], true]);
  });

  test("rejects missing files, folders and stores in use", async () => {
    const [path, missing, subfolder] = [newPath(), newPath(), newPath()];
    expect(await refusal(restore(path, missing, { signal }))).toBe(`${missing}: no such file or folder`);
    mkdirSync(subfolder);
    expect(await refusal(restore(path, subfolder, { signal }))).toBe(`${subfolder}: it is not a file`);
    const used = newPath();
    const store = await openSqlite(used);
    await store.insert("a");
    expect(await refusal(restore(path, used, { signal }))).toBe(
      `${used}-wal has writes, because a server uses the store or has crashed: run todo backup on that store`,
    );
    await store.close();
    const part = `${path}.part`;
    copyFileSync(await makeBackup(), part);
    expect(await refusal(restore(path, part, { signal }))).toBe(
      `restore would overwrite ${part}: rename it first`,
    );
    const link = newPath();
    symlinkSync(part, link);
    expect(await refusal(restore(path, link, { signal }))).toBe(
      `restore would overwrite ${link}: rename it first`,
    );
    expect(filesAt(path)).toEqual([".part"]);
  });

  test.each<[what: string, fill: (path: string) => unknown]>([
    ["another program's table", foreign("CREATE TABLE x (y)")],
    ["another program's rows", foreign("CREATE TABLE x (y); INSERT INTO x VALUES (1)")],
    ["another program's user_version", foreign("CREATE TABLE x (y); PRAGMA user_version = 99")],
  ])("does not replace a database with %s", async (_what, fill) => {
    const path = newPath();
    await fill(path);
    const before = filesAt(path);
    const inode = statSync(path).ino;
    expect(await refusal(restore(path, await makeBackup(), { signal }))).toStartWith(path);
    expect([filesAt(path), statSync(path).ino]).toEqual([before, inode]);
  });

  test("rejects a store that a server uses", async () => {
    const path = newPath();
    const store = await openSqlite(path);
    expect((await errorOf(restore(path, await makeBackup(), { signal }))).message).toBe(
      `${path} is in use by another server: stop it first`,
    );
    expect((await store.insert("a")).id).toBe(1n);
    await store.close();
  });
});

function writer() {
  const written = { text: "", pieces: 0 };
  const write = async (piece: string): Promise<void> => {
    written.text += piece;
    written.pieces++;
  };
  return { written, write };
}

const chunks = (text: string) => new Blob([text]).stream();

describe("exportTodos", () => {
  test("writes what importTodos accepts, with API keys if they are wanted", async () => {
    for (const keys of ["include", "omit"] as const) {
      const { written, write } = writer();
      const summary = await exportTodos(await makeStore(), write, { signal, keys });
      const expected = { todos: 2, lastId: 4n, ...(keys === "include" && { keys: 1 }) };
      expect(summary).toEqual({ keys: undefined, ...expected });
      expect(written.text.includes('"name":"alice"')).toBe(keys === "include");
      const path = newPath();
      expect(await importTodos(path, chunks(written.text), 2, { signal, keys })).toEqual(expected);
      for (const damaged of ["refuse", "skip"] as const) {
        const again = writer();
        const { problems } = await exportTodos(path, again.write, { signal, keys, damaged });
        expect([problems, again.written.text]).toEqual([undefined, written.text]);
      }
    }
  });

  test("rejects with the reason when aborted, and writes nothing more", async () => {
    const controller = new AbortController();
    const reason = new Error("enough");
    let writes = 0;
    const write = async (): Promise<void> => {
      writes++;
      controller.abort(reason);
    };
    expect(await errorOf(exportTodos(await makeStore(), write, { signal: controller.signal }))).toBe(reason);
    expect(writes).toBe(1);
  });

  test("has read everything when it writes, so that its reader does not let the WAL of a server grow", async () => {
    const path = await makeStore();
    const store = await openSqlite(path);
    const busy: (number | undefined)[] = [];
    await exportTodos(
      path,
      async () => {
        using other = new Database(path);
        busy.push(other.query<{ busy: number }, []>("PRAGMA wal_checkpoint(TRUNCATE)").get()?.busy);
      },
      { signal },
    );
    expect(new Set(busy)).toEqual(new Set([0]));
    await store.close();
  });
});

describe("importTodos", () => {
  test.each([
    ["an invalid line", ['{"id":1,"title":"a","done":false}', '{"id":1,"title":"b","done":false}'], "line 2"],
    [
      "too few API keys",
      ['{"todoService":1,"lastId":"0","todos":0,"keys":2}', encodeKey(KEY)],
      "2 API keys, but it has 1",
    ],
  ])("stores nothing because of %s, and leaves no file", async (_what, lines, reason) => {
    const path = newPath();
    const refused = importTodos(path, chunks(lines.join("\n")), 10, { signal, keys: "include" });
    expect((await errorOf(refused)).message).toContain(reason);
    expect(filesAt(path)).toEqual([]);
  });

  test("accepts an empty store, whose old copy then does not start", async () => {
    const path = newPath();
    await (await openSqlite(path)).close();
    const empty = readFileSync(path);
    await importTodos(path, chunks('{"id":1,"title":"a","done":false}\n'), 10, { signal });
    const store = await openSqlite(path, { onWarning: expect.unreachable });
    expect(store.count).toBe(1);
    await store.close();
    writeFileSync(path, empty);
    expect((await errorOf(openSqlite(path))).message).toContain("its last change is missing");
  });

  test("rejects a store that has contained to-dos, and one in use", async () => {
    const path = await makeStore();
    const line = '{"id":1,"title":"a","done":false}\n';
    expect(await refusal(importTodos(path, chunks(line), 10, { signal }))).toContain("has contained to-dos");
    const store = await openSqlite(path);
    expect((await errorOf(importTodos(path, chunks(line), 10, { signal }))).message).toContain("is in use");
    await store.close();
  });

  test("lets no server open the store until it ends", async () => {
    const path = newPath();
    let said = "";
    async function* source() {
      said = (await errorOf(openSqlite(path))).message;
      yield* chunks('{"id":1,"title":"a","done":false}\n');
    }
    await importTodos(path, source(), 10, { signal });
    expect(said).toContain("is in use");
    await (await openSqlite(path)).close();
  });
});

describe("exportTodos of what can be read", () => {
  test("finds no damage in a sound store that a server changes meanwhile", async () => {
    const path = newPath();
    await importTodos(path, chunks(exportOf(30_000)), 30_000, { signal });
    const program = `const store = await (await import(${JSON.stringify(import.meta.resolve("./store.ts"))}))
      .openSqlite(${JSON.stringify(path)});
      for (let n = 0; ; n++) console.log((await store.insert("new", "key " + n)).id);`;
    const server = Bun.spawn([process.execPath, "-e", program], { stdout: "pipe" });
    try {
      await server.stdout.getReader().read();
      for (let round = 0; round < 10; round += 1) {
        const { written, write } = writer();
        expect((await exportTodos(path, write, { signal, damaged: "skip" })).problems).toBeUndefined();
        await importTodos(newPath(), chunks(written.text), 100_000, { signal });
      }
    } finally {
      server.kill();
      await server.exited;
    }
  });

  test("leaves out what is damaged, and says so", async () => {
    const path = await makeStore();
    foreign(`UPDATE todos SET json = 'x' WHERE id = 3;
      UPDATE keys SET name = 'bob'; UPDATE store SET last_id = 9; DROP TABLE idempotency_records`)(path);
    const { written, write } = writer();
    const { problems } = await exportTodos(path, write, { signal, damaged: "skip", keys: "include" });
    expect(problems).toEqual([
      "left out what is damaged: an API key is damaged",
      "no API key is exported: an API key is damaged",
      expect.stringContaining("no idempotency key is exported: "),
      "ids may be assigned again: its counters are damaged",
    ]);
    expect(written.text).toBe(
      '{"todoService":1,"lastId":"4","todos":1,"keys":0}\n{"id":4,"title":"once","done":false}\n',
    );
  });

  test("exports the to-dos around a damaged page", async () => {
    const path = newPath();
    await importTodos(path, chunks(exportOf(2000)), 2000, { signal });
    const bytes = readFileSync(path);
    const at = Math.floor(bytes.indexOf('"to-do 1000 ') / 4096) * 4096;
    writeFileSync(path, bytes.fill(0xee, at, at + 4096));
    const { write } = writer();
    const { todos, problems } = await exportTodos(path, write, { signal, damaged: "skip" });
    expect(todos).toBeWithin(1850, 1999);
    expect(problems?.[0]).toStartWith("left out what is damaged: ");
  });
});
