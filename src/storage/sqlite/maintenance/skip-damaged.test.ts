import { Database } from "bun:sqlite";
import { describe, expect, test } from "bun:test";
import { copyFileSync, existsSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { copiesOf, storePathsIn } from "../../../../test/temporary.ts";
import { hashToken } from "../../../credential/token.ts";
import { parseMadeWith } from "../../records/key-row.ts";
import { DEFAULTS } from "../../store.ts";
import { openSqlite } from "../store.ts";
import { check } from "./check.ts";
import { exportSkippingDamaged } from "./skip-damaged.ts";
import { exportTodos, importTodos } from "./transfer.ts";

const newPath = storePathsIn();

const COUNT = 2000;
const PAGE = 4096;
const options = { signal: new AbortController().signal };

const makeStore = copiesOf(newPath, async (path) => {
  const store = await openSqlite(path);
  await Promise.all(Array.from({ length: COUNT }, (_, index) => store.insert(`to-do ${index + 1} 😀`)));
  await store.setDone(2n, true);
  await store.close();
});

function run(path: string, sql: string): void {
  const database = new Database(path);
  database.run(sql);
  database.close();
}

async function rescue(path: string, keys: "include" | "omit" = "omit") {
  let text = "";
  const summary = await exportSkippingDamaged(
    path,
    async (piece) => {
      text += piece;
    },
    { ...options, keys },
  );
  return { text, ids: idsIn(text), ...summary };
}

const idsIn = (text: string): number[] =>
  text
    .split("\n")
    .slice(1, -1)
    .map((line) => JSON.parse(line).id);

const upTo = (last: number): number[] => Array.from({ length: last }, (_, index) => index + 1);

async function exported(path: string): Promise<string> {
  let text = "";
  const write = async (piece: string) => {
    text += piece;
  };
  await exportTodos(path, write, options);
  return text;
}

/** Returns the offsets of the pages that contain to-dos, in the order of their ids. */
function todoPages(path: string): number[] {
  const bytes = readFileSync(path);
  const offsets: number[] = [];
  for (let offset = 0; offset < bytes.length; offset += PAGE) {
    const isLeaf = bytes[offset] === 0x0d;
    const text = bytes.subarray(offset, offset + PAGE).toString();
    if (isLeaf && /"to-do \d+ /.test(text) && !text.includes("+{")) offsets.push(offset);
  }
  return offsets;
}

function overwrite(path: string, offset: number, bytes: Uint8Array): void {
  const all = readFileSync(path);
  all.set(bytes, offset);
  writeFileSync(path, all);
}

describe("exportSkippingDamaged", () => {
  test("exports an undamaged store as export does", async () => {
    const path = await makeStore();
    const { text, problems, todos, lastId } = await rescue(path);
    expect({ problems, todos, lastId }).toEqual({ problems: [], todos: COUNT, lastId: BigInt(COUNT) });
    expect(text).toBe(await exported(path));
  });

  test("omits invalid to-dos and names them", async () => {
    const path = await makeStore();
    run(
      path,
      `UPDATE todos SET json = 'no JSON' WHERE id = 3;
       UPDATE todos SET json = '{"id":4,"title":5,"done":false}' WHERE id = 4;
       UPDATE todos SET json = replace(json, 'false', '7') WHERE id = 5;
       UPDATE todos SET id = 90000 WHERE id = 6;
       UPDATE todos SET json = '{"id":7,"title":"","done":false}' WHERE id = 7;`,
    );
    const { ids, problems, todos } = await rescue(path);
    expect(ids).toEqual(upTo(COUNT).filter((id) => id < 3 || id > 7));
    expect(todos).toBe(COUNT - 5);
    expect(problems).toEqual(["left out 5 damaged to-dos: 3, 4, 5, 7, 90000"]);
  });

  test("reports valid to-dos that differ from the checksum", async () => {
    const path = await makeStore();
    run(path, `UPDATE todos SET json = replace(json, '"to-do', '"other') WHERE id = 3`);
    const { ids, problems } = await rescue(path);
    expect(ids).toEqual(upTo(COUNT));
    expect(problems).toEqual([
      "the contents differ from their checksum: some of the exported to-dos may be wrong or missing",
    ]);
    expect(await exported(path).catch(String)).toContain(
      "its to-dos, API keys or counters differ from their checksum",
    );
  });

  test.each<[what: string, pages: readonly number[]]>([
    ["the first page", [0]],
    ["pages in the middle", [3, 4, 8]],
    ["the last page", [-1]],
  ])("exports the to-dos around %s", async (_what, pages) => {
    const path = await makeStore();
    const offsets = todoPages(path);
    for (const page of pages) overwrite(path, offsets.at(page) ?? 0, new Uint8Array(PAGE).fill(0xee));
    const { ids, problems, todos, lastId } = await rescue(path);
    const missing = upTo(COUNT).filter((id) => !ids.includes(id));
    expect(missing.length).toBeGreaterThan(10 * pages.length);
    expect(missing.length).toBeLessThan(200 * pages.length);
    expect({ todos, lastId }).toEqual({ todos: COUNT - missing.length, lastId: BigInt(COUNT) });
    expect(problems).toEqual([
      expect.stringMatching(/^left out the to-dos that cannot be read, if any, with these ids: \d+ to \d+/),
    ]);
  });

  test("writes an export that import accepts", async () => {
    const path = await makeStore();
    overwrite(path, todoPages(path)[2] ?? 0, new Uint8Array(PAGE));
    const { text, todos } = await rescue(path);
    async function* source() {
      yield Buffer.from(text);
    }
    const copy = newPath();
    const imported = await importTodos(copy, source(), DEFAULTS.maxTodos, options);
    expect(imported).toEqual({ todos, lastId: BigInt(COUNT) });
    const store = await openSqlite(copy);
    expect((await store.insert("next")).id).toBe(BigInt(COUNT + 1));
    await store.close();
  });

  describe("with API keys and idempotency keys", () => {
    const apiKey = (n: number) => ({
      id: `k${n}`,
      name: `key ${n}`,
      tokenHash: hashToken(`${n}`),
      scope: "read" as const,
      createdAt: n,
    });
    async function makeStoreWithKeys(count: number): Promise<string> {
      const path = newPath();
      const store = await openSqlite(path);
      await store.insert("a", "key a");
      for (let n = 1; n <= count; n++) await store.keys.insert(apiKey(n));
      await store.close();
      return path;
    }
    async function* chunk(text: string) {
      yield Buffer.from(text);
    }

    test("exports them from a store whose to-dos are damaged", async () => {
      const path = await makeStoreWithKeys(2);
      run(path, "UPDATE todos SET json = replace(json, 'false', '7')");
      const { text, problems, keys } = await rescue(path, "include");
      expect([keys, problems]).toEqual([2, ["left out 1 damaged to-do: 1"]]);
      const copy = newPath();
      await importTodos(copy, chunk(text), DEFAULTS.maxTodos, { ...options, keys: "include" });
      const store = await openSqlite(copy);
      expect(await store.keys.find(hashToken("2"))).toEqual(apiKey(2));
      expect((await store.insert("a", "key a")).id).toBe(1n);
      await store.close();
      expect((await rescue(path)).text).not.toContain("apiKey");
    });

    test("leaves out those that an import would reject", async () => {
      const path = await makeStoreWithKeys(3);
      run(
        path,
        `UPDATE keys SET name = '' WHERE id = 'k1'; UPDATE keys SET token_hash = x'00' WHERE id = 'k2';
         UPDATE idempotency_records SET title_hash = '"'`,
      );
      const { text, problems, keys } = await rescue(path, "include");
      expect(keys).toBe(1);
      expect(problems).toEqual([
        "left out 2 damaged API keys",
        "left out damaged idempotency keys: a repeated request may create a second to-do",
      ]);
      await importTodos(newPath(), chunk(text), DEFAULTS.maxTodos, { ...options, keys: "include" });
    });

    test("leaves out API keys with values that SQLite cannot have stored, and keys made with them", async () => {
      const path = await makeStoreWithKeys(5);
      const store = await openSqlite(path);
      for (const parent of ["key:k2", "code:key:k2", "key:k3", "user::zoe"]) {
        const browser = { ...apiKey(0), id: parent.replaceAll(":", "-"), tokenHash: hashToken(parent) };
        await store.keys.insert({ ...browser, name: parent, ...parseMadeWith(parent) });
      }
      await store.close();
      run(
        path,
        `ALTER TABLE keys RENAME TO old;
         CREATE TABLE keys AS SELECT * FROM old;
         UPDATE keys SET token_hash = 5 WHERE id IN ('k1', 'k2')`,
      );
      const { text, problems, keys } = await rescue(path, "include");
      expect([keys, problems]).toEqual([
        5,
        ["left out 2 damaged API keys", "left out 2 API keys made with a damaged one"],
      ]);
      await importTodos(newPath(), chunk(text), DEFAULTS.maxTodos, { ...options, keys: "include" });
      expect((await rescue(path, "omit")).problems).toEqual([expect.stringContaining("the contents differ")]);
    });

    test("exports the API keys around a damaged page", async () => {
      const path = await makeStoreWithKeys(300);
      const bytes = readFileSync(path);
      const pages: number[] = [];
      for (let offset = PAGE; offset < bytes.length; offset += PAGE)
        if (bytes[offset] === 0x0d && /key \d+/.test(bytes.subarray(offset, offset + PAGE).toString()))
          pages.push(offset);
      overwrite(path, pages[2] ?? 0, new Uint8Array(PAGE).fill(0xee));
      const { problems, keys } = await rescue(path, "include");
      expect(keys).toBeWithin(150, 300);
      expect(problems).toEqual(["left out the API keys that cannot be read, if any"]);
    });
  });

  test("reads the greatest id from the to-dos if the counter is lost", async () => {
    const path = await makeStore();
    run(path, "DELETE FROM store");
    const { lastId, problems } = await rescue(path);
    expect(lastId).toBe(BigInt(COUNT));
    expect(problems).toEqual(["the greatest assigned id cannot be read: ids may be reused"]);
  });

  test("fails with the reason if nothing can be read", async () => {
    const path = newPath();
    writeFileSync(path, "no database, ".repeat(1000));
    expect(await rescue(path).catch(String)).toContain("file is not a database: nothing in it can be read");
  });
});

describe("check", () => {
  const named = async (path: string) =>
    Object.fromEntries(
      (await check(path)).map(({ name, isSound, detail }) => [name, isSound ? true : detail]),
    );

  test("reports no problem in an undamaged store, also while a server uses it", async () => {
    const path = await makeStore();
    const store = await openSqlite(path);
    await store.insert("in the WAL");
    expect(await named(path)).toMatchObject({ structure: true, contents: true });
    await store.close();
  });

  test("reports damaged pages, wrong contents and unreadable files", async () => {
    const pages = await makeStore();
    overwrite(pages, todoPages(pages)[2] ?? 0, new Uint8Array(PAGE).fill(0xee));
    expect(await named(pages)).toMatchObject({
      structure: expect.stringMatching(/page|malformed/),
      contents: expect.stringContaining("malformed"),
    });
    const contents = await makeStore();
    run(contents, "UPDATE todos SET json = replace(json, 'false', 'true')");
    expect(await named(contents)).toMatchObject({
      structure: true,
      contents: "its to-dos, API keys or counters differ from their checksum",
    });
    const invalid = await makeStore();
    run(invalid, "UPDATE todos SET json = 'x'");
    expect(await named(invalid)).toMatchObject({
      structure: true,
      contents: "2000 of its to-dos are invalid",
    });
    const text = newPath();
    writeFileSync(text, "no database, ".repeat(1000));
    expect(await named(text)).toMatchObject({ structure: expect.stringContaining("not a database") });
  });

  test("changes neither the database nor its WAL", async () => {
    const path = await makeStore();
    const store = await openSqlite(path);
    await store.insert("in the WAL");
    const copy = newPath();
    for (const suffix of ["", "-wal"]) copyFileSync(path + suffix, copy + suffix);
    await store.close();
    const before = ["", "-wal"].map((suffix) => readFileSync(copy + suffix));
    expect(await named(copy)).toMatchObject({ structure: true, contents: true });
    expect(["", "-wal"].map((suffix) => existsSync(copy + suffix) && readFileSync(copy + suffix))).toEqual(
      before,
    );
  });
});

describe("check of the high-water mark", () => {
  const mark = async (path: string) => (await check(path)).find(({ name }) => name === "mark");

  test("accepts a store that has all transactions of its mark", async () => {
    expect(await mark(await makeStore())).toEqual({ name: "mark", isSound: true, detail: "ok" });
  });

  test("reports a store that is behind its mark", async () => {
    const path = await makeStore();
    const old = newPath();
    copyFileSync(path, old);
    const store = await openSqlite(path);
    await store.insert("later");
    await store.close();
    copyFileSync(old, path);
    expect(await mark(path)).toMatchObject({ isSound: false, detail: expect.stringContaining("is missing") });
  });

  test("reports why a mark was not checked, unless it is missing, as beside a backup", async () => {
    const path = await makeStore();
    writeFileSync(`${path}-mark`, "?");
    expect(await mark(path)).toEqual({
      name: "mark",
      isSound: true,
      detail: `not checked, because ${path}-mark cannot be read: it is damaged`,
    });
    rmSync(`${path}-mark`);
    expect(await mark(path)).toBeUndefined();
  });
});
