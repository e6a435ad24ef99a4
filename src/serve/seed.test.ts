import { describe, expect, test } from "bun:test";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { runTodo } from "../../test/command.ts";
import { openDatabases, whyNoDatabase } from "../../test/postgres.ts";
import { PATIENT } from "../../test/postgres-store.ts";
import { errorOf } from "../../test/rejection.ts";
import { skipFor } from "../../test/skip.ts";
import { read } from "../../test/store-contract.ts";
import { temporaryFolder } from "../../test/temporary.ts";
import { UsageError } from "../config/usage-error.ts";
import { openMemory } from "../storage/memory/store.ts";
import { openPostgres } from "../storage/postgres/store.ts";
import { seedStore } from "./seed.ts";

const folder = temporaryFolder();

const file = (text: string) => {
  const path = join(folder, `${Bun.randomUUIDv7()}.txt`);
  writeFileSync(path, text);
  return { value: path, source: "--seed" };
};

const listOf = async (store: ReturnType<typeof openMemory>): Promise<string> =>
  new Response((await store.list({ limit: 1000 })).json as Blob).text();

describe("seedStore", () => {
  test.each([
    ["lines", "- [ ] buy milk\r\n\n- [x] call Ada\nplain\n- {braces}\n* [X] done\n"],
    [
      "an export",
      `{"todoService":1,"lastId":"9","todos":5}
{"id":2,"title":"buy milk","done":false}
{"id":3,"title":"call Ada","done":true}
{"id":4,"title":"plain","done":false}
{"id":6,"title":"{braces}","done":false}
{"id":9,"title":"done","done":true}
`,
    ],
  ])("fills an empty store from %s", async (_what, text) => {
    const store = openMemory();
    expect(await seedStore(store, file(text), 5)).toBe(5);
    const titles = ["buy milk", "call Ada", "plain", "{braces}", "done"];
    const todos = titles.map((title, index) => ({ id: index + 1, title, done: index === 1 || index === 4 }));
    expect(JSON.parse(await listOf(store))).toEqual(todos);
  });

  test.skipIf(skipFor(whyNoDatabase))("fills a database once if several replicas start at once", async () => {
    await using databases = await openDatabases();
    const url = await databases.newDatabase();
    const replicas = await Promise.all([1, 2, 3].map(() => openPostgres(url, PATIENT)));
    const seed = file(Array.from({ length: 1500 }, (_, i) => `- [${i % 2 ? "x" : " "}] ${i % 9}\n`).join(""));
    await Promise.all(replicas.map((store) => seedStore(store, seed, 2000)));
    const todos = await Promise.all(
      replicas.map(async (store) =>
        (await read(await store.list({}))).todos.map(({ done, title }) => [title, done]),
      ),
    );
    const expected = Array.from({ length: 1500 }, (_, i) => [`${i % 9}`, i % 2 === 1]);
    expect(todos).toEqual([expected, expected, expected]);
    for (const store of replicas) await store.close();
  });

  test("leaves a store alone that has held a to-do before", async () => {
    const store = openMemory();
    await store.insert("x");
    await store.delete(1n);
    expect(await seedStore(store, file("y\n"), 5)).toBeUndefined();
    expect(await listOf(store)).toBe("[]");
  });

  test.each([
    ["a title that is too long", `ok\n${"x".repeat(121)}\n`, "line 2: title: must be at most 120 characters"],
    ["a wrong line of an export", '{"id":1,"title":"a","done":false}\n{"id":1}\n', "line 2"],
    ["too many to-dos", "1\n2\n3\n4\n5\n6\n", "the file has more than 5 to-dos: raise --max-todos"],
  ])("rejects %s, and stores nothing", async (_what, text, message) => {
    const store = openMemory();
    const seed = file(text);
    const error = await errorOf(seedStore(store, seed, 5));
    expect(error).toBeInstanceOf(UsageError);
    expect(String(error)).toStartWith(`Error: --seed ${seed.value}`);
    expect(String(error)).toContain(message);
    expect(await listOf(store)).toBe("[]");
  });
});

describe("todo serve", () => {
  test("--seed fills the store, and says so in the log", async () => {
    await using server = runTodo(["serve", "--port", "0", "--seed", file("- [x] a\nb\n").value]);
    const response = await fetch(`${await server.url}/api/todos`);
    expect(await response.json()).toEqual([
      { id: 1, title: "a", done: true },
      { id: 2, title: "b", done: false },
    ]);
    expect(server.stdout()).toContain('"todos":2,"msg":"store seeded"');
  });

  test("--simulate fails requests, and warns", async () => {
    await using server = runTodo(["serve", "--port", "0", "--simulate", "errors=100%"]);
    expect((await fetch(`${await server.url}/api/todos`)).status).toBe(500);
    expect((await fetch(`${await server.url}/livez`)).status).toBe(200);
    expect(server.stdout()).toContain("SIMULATION");
  });

  test("--simulate off loopback exits with 2", async () => {
    await using server = runTodo(["serve", "--port", "0", "--host", "0.0.0.0", "--simulate", "errors=1%"]);
    expect([await server.exited, server.stderr()]).toEqual([
      2,
      "todo: --simulate works on loopback only, and --host is 0.0.0.0: leave one out\n",
    ]);
  });

  test("--simulate has no variable", async () => {
    await using server = runTodo(["serve", "--port", "0"], { TODO_SIMULATE: "errors=1%" });
    expect(await server.exited).toBe(2);
    expect(server.stderr()).toContain("unknown variable TODO_SIMULATE");
  });
});
