import { describe, expect, test } from "bun:test";
import { openDatabases, whyNoDatabase } from "../../test/postgres.ts";
import { errorOf } from "../../test/rejection.ts";
import { skipFor } from "../../test/skip.ts";
import { read } from "../../test/store-contract.ts";
import { filesIn } from "../../test/temporary.ts";
import { readConfig } from "../config/config.ts";
import { UsageError } from "../config/usage-error.ts";
import { openStore } from "../storage/open.ts";
import type { Store } from "../storage/store.ts";
import { seedStore } from "./seed.ts";

const file = filesIn();

async function seed(url: string, path: string, maxTodos = "5") {
  const { store: config } = readConfig({ seed: path, store: url, maxTodos }, {});
  const open = () => openStore(url, {});
  return seedStore(await open(), config, open);
}

const STORES: readonly [string, () => string][] = [
  ["memory", () => "memory:"],
  ["SQLite", () => `sqlite:${file()}`],
];

const listOf = async (store: Store) => (await read(await store.list({}))).todos;

describe("seedStore", () => {
  test.each([
    ["lines with other breaks", "- [ ] buy milk\r- [x] call Ada\u2028plain\u2029+ {braces}\x85* [X] done\r"],
    ["lines", "- [ ] buy milk\r\n\n- [ ] \n-\n* [x]\n1. [x] call Ada\nplain\n- {braces}\n* [X] done\n"],
    [
      "an export",
      `{"todoService":1,"lastId":"9","todos":5}
       {"id":2,"title":"buy milk","done":false}
       {"id":3,"title":"call Ada","done":true}
       {"id":4,"title":"plain","done":false}
       {"id":6,"title":"{braces}","done":false}
       {"id":9,"title":"done","done":true}\n`.replaceAll(/^ +/gm, ""),
    ],
  ])("fills an empty store from %s", async (_what, text) => {
    for (const [, newUrl] of STORES) {
      const url = newUrl();
      const { store, todos } = await seed(url, file(text));
      expect(todos).toBe(5);
      const titles = ["buy milk", "call Ada", "plain", "{braces}", "done"];
      expect((await listOf(store)).map(({ id, title, done }) => [Number(id), title, done])).toEqual(
        titles.map((title, index) => [index + 1, title, index === 1 || index === 4]),
      );
      await store.close();
      if (url !== "memory:") await expectUnseeded(url);
    }
  });

  test.skipIf(skipFor(whyNoDatabase))("fills a database once if several replicas start at once", async () => {
    await using databases = await openDatabases();
    const url = await databases.newDatabase();
    const expected = Array.from({ length: 1500 }, (_, i): [string, boolean] => [`${i % 9}`, i % 2 === 1]);
    const lines = file(expected.map(([title, done]) => `- [${done ? "x" : " "}] ${title}\n`).join(""));
    const replicas = await Promise.all([1, 2, 3].map(() => seed(url, lines, "2000")));
    expect(replicas.filter(({ todos }) => todos === 1500)).toHaveLength(1);
    for (const { store } of replicas) {
      expect((await listOf(store)).map(({ title, done }) => [title, done])).toEqual(expected);
      await store.close();
    }
  });

  async function expectUnseeded(url: string): Promise<void> {
    const { store, todos } = await seed(url, file("y\n"));
    expect([todos, (await listOf(store)).some(({ title }) => title === "y")]).toEqual([undefined, false]);
    await store.close();
  }

  test("leaves a store alone that has held a to-do before", async () => {
    const url = STORES[1]?.[1]() ?? "";
    const store = await openStore(url, {});
    await store.insert("x");
    await store.delete(1n);
    await store.close();
    await expectUnseeded(url);
  });

  test("blames the store, not the file, if the store cannot be used", async () => {
    const damaged = file("x".repeat(5000));
    const { store: config } = readConfig({ seed: file("a\n"), store: `sqlite:${damaged}` }, {});
    const open = () => openStore("memory:", {});
    const error = await errorOf(seedStore(await open(), config, open));
    expect(error).toBeInstanceOf(UsageError);
    expect(error.message).toStartWith(`--store: ${damaged}: file is not a database`);
  });

  test("accepts a file without to-dos", async () => {
    for (const [, newUrl] of STORES) {
      const { store, todos } = await seed(newUrl(), file("\n"));
      expect([todos, await listOf(store)]).toEqual([0, []]);
      await store.close();
    }
  });

  describe.each(STORES)("with %s", (_store, newUrl) => {
    test.each([
      ["a title that is too long", `ok\n${"x".repeat(121)}\n`, "line 2: title: must be at most 120"],
      ["a wrong line of an export", '{"id":1,"title":"a","done":false}\n{"id":1}\n', "line 2"],
      ["too many to-dos", "1\n2\n3\n4\n5\n6\n", "the file has more than 5 to-dos: raise the limit"],
    ])("rejects %s, and stores nothing", async (_what, text, message) => {
      const [url, path] = [newUrl(), file(text)];
      const error = await errorOf(seed(url, path));
      expect(error).toBeInstanceOf(UsageError);
      expect(String(error)).toStartWith(`Error: --seed ${path}`);
      expect(String(error)).toContain(message);
      const store = await openStore(url, {});
      expect(await listOf(store)).toEqual([]);
      await store.close();
    });
  });
});
