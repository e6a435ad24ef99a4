import { Database } from "bun:sqlite";
import { describe, expect, test } from "bun:test";
import { readFileSync, statSync, writeFileSync } from "node:fs";
import { callTodo, complaintOf, jsonLines } from "../../../test/call-todo.ts";
import { mint } from "../../../test/credentials.ts";
import { openDatabases, whyNoDatabase } from "../../../test/postgres.ts";
import { createTodo, listTodos, sendJson } from "../../../test/served-todos.ts";
import { serveFile } from "../../../test/server.ts";
import { skipFor } from "../../../test/skip.ts";
import { filesAt, storePathsIn } from "../../../test/temporary.ts";
import { until } from "../../../test/until.ts";
import { createLink } from "../../credential/session.ts";
import { openSqlite } from "../../storage/sqlite/store.ts";

const WRITERS = 8;

const newPath = storePathsIn();

const ran = (...args: readonly string[]) => callTodo(args);
const refusal = (...args: readonly string[]) => complaintOf(callTodo(args));

const on = (path: string): readonly string[] => ["--store", `sqlite:${path}`];

async function markDone(url: string, id: number): Promise<void> {
  expect((await sendJson(url, `PATCH /api/todos/${id}`, { done: true })).ok).toBe(true);
}

/** Writes to a server as fast as it responds. The returned collections show what it has acknowledged so far. */
function startWriters(url: string) {
  const titles = new Map<number, string>();
  const done = new Set<number>();
  let stopped = false;
  const write = async (writer: number): Promise<void> => {
    for (let i = 0; !stopped; i++) {
      const { id, title } = await createTodo(url, `${writer}.${i}`);
      titles.set(id, title);
      if (i % 2 === 0) continue;
      await markDone(url, id);
      done.add(id);
    }
  };
  const writing = Promise.all(Array.from({ length: WRITERS }, (_, writer) => write(writer)));
  const stop = (): Promise<unknown> => {
    stopped = true;
    return writing;
  };
  return { titles, done, stop };
}

test("a backup and an export that are made during concurrent writes contain all earlier acknowledged writes, without gaps", async () => {
  const [path, file, copy] = [newPath(), newPath(), newPath()];
  await using original = serveFile(path);
  const writers = startWriters(await original.url);
  await until(() => writers.titles.size >= 500, "500 to-dos are written");
  const before = { titles: [...writers.titles], done: [...writers.done] };
  const saved = await ran("backup", file, ...on(path));
  expect(saved).toEqual({
    code: 0,
    stdout: expect.stringMatching(/^backed up \d+ to-dos, \d+ bytes, position [0-9a-f]{16}-\d+\n$/),
    stderr: "",
  });
  const position = saved.stdout.split(" ").at(-1)?.trim() ?? "";
  const exported = await ran("export", ...on(path));
  await writers.stop();
  const written = writers.titles;
  expect(filesAt(file)).toEqual([""]);
  const { code, stdout } = await ran("restore", file, ...on(copy));
  expect([code, filesAt(copy)]).toEqual([0, [""]]);

  await using server = serveFile(copy);
  const todos = await listTodos(await server.url);
  expect(stdout).toStartWith(`restored ${todos.length} to-dos, ${statSync(file).size} bytes, position `);
  expect(todos.map(({ id }) => id)).toEqual(todos.map((_, index) => index + 1));
  expect(todos.filter(({ id, title }) => written.get(id) !== title)).toEqual([]);
  expect(before.titles.filter(([id, title]) => todos[id - 1]?.title !== title)).toEqual([]);
  expect(before.done.filter((id) => todos[id - 1]?.done !== true)).toEqual([]);
  const changes = todos.length + todos.filter(({ done }) => done).length;
  expect(position).toEndWith(`-${changes}`);
  expect(todos.length).toBeLessThan(written.size);
  const [header, ...lines] = jsonLines(exported.stdout);
  expect(header).toMatchObject({ lastId: `${lines.length}`, todos: lines.length });
  expect(exported.stderr).toBe(`exported ${lines.length} to-dos, the last id is ${lines.length}\n`);
  expect(lines.length).toBeWithin(todos.length, written.size + 1);
  expect(lines.filter(({ id, title }, index) => id !== index + 1 || written.get(id) !== title)).toEqual([]);
  expect(before.done.filter((id) => lines[id - 1]?.done !== true)).toEqual([]);
  expect((await createTodo(await server.url, "next")).id).toBe(todos.length + 1);
});

describe("todo rejects, with one line,", () => {
  const SQLITE = "sqlite:PATH";
  const KEPT = "sqlite:PATH or postgres://…";
  const KEEPS_NOTHING = "the memory store keeps nothing: name another store, such as sqlite:todos.db";

  test.each<[command: string, urls: string, args: readonly string[]]>([
    ["backup", SQLITE, ["x.db"]],
    ["restore", SQLITE, ["x.db"]],
    ["check", SQLITE, []],
    ["export", KEPT, []],
    ["import", KEPT, []],
    ["migrate", KEPT, []],
  ])("%s with the memory store, and offers only the stores that it accepts", async (command, urls, args) => {
    const outcome = callTodo([command, ...args], { TODO_STORE: "memory:" });
    expect(await complaintOf(outcome)).toBe(`TODO_STORE: ${KEEPS_NOTHING}`);
    const help = (await ran(command, "--help")).stdout;
    expect(help.replace(/\s+/g, " ")).toContain(`store to use: ${urls} (TODO_STORE)`);
    expect(help).not.toContain("memory:");
    if (urls === SQLITE) expect(help).not.toContain("postgres:");
  });

  test.each<[line: string, complaint: string]>([
    ["migrate", `--store or TODO_STORE: ${KEEPS_NOTHING}`],
    [
      "migrate --store mysql://u:hunter2@h/d",
      `--store: there is no store of the kind "mysql:": use memory:, sqlite:PATH or postgres://…`,
    ],
    ["backup x.db --store postgres://u:hunter2@h/d", "to back up PostgreSQL, run pg_dump"],
    ["restore x.db --store postgres://u:hunter2@h/d", "to restore PostgreSQL, run pg_restore"],
    ["check --store postgres://u:hunter2@h/d", "to check PostgreSQL, run pg_amcheck"],
    ["check postgres://u:hunter2@h/d", "todo check is for SQLite files: give PATH or sqlite:PATH"],
    ["check memory:", "todo check is for SQLite files: give PATH or sqlite:PATH"],
    ["export --skip-damaged --store postgres://u:hunter2@h/d", "on PostgreSQL, leave out --skip-damaged"],
    ["backup", "missing required argument 'file'"],
  ])("%s", async (line, complaint) => {
    expect(await refusal(...line.split(" "))).toBe(complaint);
  });

  test("a backup of a missing store, and over an existing file", async () => {
    const [path, file] = [newPath(), newPath()];
    const missing = `${path} does not exist: check the path of the store`;
    expect(await refusal("backup", file, ...on(path))).toBe(missing);
    expect(await refusal("check", path)).toBe(missing);
    writeFileSync(file, "not a database, ".repeat(1000));
    expect(await refusal("restore", file, ...on(path))).toStartWith(
      `${file}: file is not a database: name another file`,
    );
    expect([filesAt(path), filesAt(file)]).toEqual([[], [""]]);
    await (await openSqlite(path)).close();
    expect(await refusal("backup", file, ...on(path))).toContain(`${file} already exists`);
  });
});

test("todo backup and todo restore count one to-do in the singular, and name the old store and its keys", async () => {
  const [path, file] = [newPath(), newPath()];
  const store = await openSqlite(path);
  await store.insert("a");
  const { id } = (await mint(store.keys, "phone")).key;
  // Neither a link nor an expired key is valid, and only the second one is listed.
  await mint(store.keys, "old", { lifetime: 1000, now: Date.now() - 2000 });
  await createLink(store.keys, { kind: "key", id }, "write", Date.now());
  await store.close();
  expect((await ran("backup", file, ...on(path))).stdout).toStartWith("backed up 1 to-do, ");
  writeFileSync(path, "");
  const { code, stdout } = await ran("restore", file, ...on(path));
  expect(code).toBe(0);
  expect(stdout).toStartWith("restored 1 to-do, ");
  expect(stdout).toContain("\n1 API key is valid, as at the time of the backup: ");
  expect(stdout).toContain(`moved the old store to ${path}.`);
});

async function makeStore(damage = ""): Promise<string> {
  const path = newPath();
  const store = await openSqlite(path);
  for (const title of ["a", "b", "c"]) await store.insert(title);
  await store.close();
  if (damage === "") return path;
  using database = new Database(path);
  database.run(damage);
  return path;
}

describe("todo check", () => {
  test("exits with 0 for an undamaged store that is given as a path, a URL or a variable", async () => {
    const path = await makeStore();
    const url = `sqlite:${path}`;
    for (const [args, variables] of [
      [[path], {}],
      [[url], {}],
      [["--store", url], {}],
      [[], { TODO_STORE: url }],
    ] as const) {
      const { code, stdout, stderr } = await callTodo(["check", ...args], variables);
      expect([code, stderr]).toEqual([0, ""]);
      expect(stdout).toMatch(/^structure: ok\ncontents: ok\nhistory: ok\n(?:mark: .*\n)?$/);
    }
  });

  test("exits with 1 and prints what is damaged, with --json each check as a line", async () => {
    const path = await makeStore("UPDATE todos SET json = replace(json, 'false', 'true') WHERE id = 2");
    const { code, stdout } = await ran("check", path);
    expect(code).toBe(1);
    expect(stdout).toStartWith("structure: ok\ncontents: damaged: the to-do 2 is damaged\n");
    const asJson = await ran("check", "--json", path);
    expect([asJson.code, jsonLines(asJson.stdout)]).toEqual([
      1,
      [
        { name: "structure", status: "ok", text: "ok" },
        { name: "contents", status: "damaged", text: "the to-do 2 is damaged" },
        { name: "history", status: "ok", text: "ok" },
        { name: "mark", status: "ok", text: expect.any(String) },
      ],
    ]);
  });
});

test("todo export --skip-damaged exits with 3, and prints on standard error what it omitted", async () => {
  const [path, file] = [await makeStore("UPDATE todos SET json = 'no JSON' WHERE id = 2"), newPath()];
  const { code, stdout, stderr } = await ran("export", "--skip-damaged", ...on(path));
  expect([code, stderr]).toEqual([
    3,
    "todo: left out what is damaged: the to-do 2 is damaged\nexported 2 to-dos, the last id is 3\n",
  ]);
  expect(stdout.split("\n").slice(1, -1)).toEqual([
    '{"id":1,"title":"a","done":false}',
    '{"id":3,"title":"c","done":false}',
  ]);
  expect((await ran("export", "--skip-damaged", file, ...on(path))).code).toBe(3);
  expect(readFileSync(file, "utf8")).toBe(stdout);
});

describe("todo migrate", () => {
  const migrate = (store: string) => callTodo(["migrate"], { TODO_STORE: store });
  const migrated = (stdout: RegExp) => ({ code: 0, stdout: expect.stringMatching(stdout), stderr: "" });

  test("reports that the schema of a SQLite file is current", async () => {
    const path = await makeStore();
    expect(await migrate(`sqlite:${path}`)).toEqual(migrated(/^the schema is current \(format 3\)\n$/));
  });

  test.skipIf(skipFor(whyNoDatabase))("creates and updates the schema of a PostgreSQL database", async () => {
    await using databases = await openDatabases();
    const url = await databases.newDatabase();
    expect(await migrate(url)).toEqual(migrated(/^the schema was migrated from format 0 \(format \d+\)\n$/));
    expect(await migrate(url)).toEqual(migrated(/^the schema is current \(format \d+\)\n$/));
  });
});
