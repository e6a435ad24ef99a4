import { describe, expect, test } from "bun:test";
import { existsSync, globSync, statSync, writeFileSync } from "node:fs";
import { callTodo } from "../../../test/call-todo.ts";
import { runTodo } from "../../../test/command.ts";
import { listTodos, type ServedTodo } from "../../../test/served-todos.ts";
import { storePathsIn } from "../../../test/temporary.ts";
import { createKey } from "../../credential/key.ts";
import { createLink } from "../../credential/session.ts";
import { openSqlite } from "../../storage/sqlite/store.ts";

const WRITERS = 8;
const HEADERS = { "Content-Type": "application/json" };

const newPath = storePathsIn();

const ran = (...args: readonly string[]) => callTodo(args);

const on = (path: string): readonly string[] => ["--store", `sqlite:${path}`];
const serve = (path: string) => runTodo(["serve", "--port", "0", ...on(path)]);

/** Returns the suffixes of all files whose path starts with this one, except the lock and the high-water mark of a store. */
const left = (path: string): string[] =>
  globSync(`${path}*`).flatMap((found) =>
    existsSync(path) && [`${path}-lock`, `${path}-mark`].includes(found) ? [] : [found.slice(path.length)],
  );

async function send(method: string, url: string, body: object): Promise<ServedTodo> {
  const response = await fetch(url, { method, headers: HEADERS, body: JSON.stringify(body) });
  expect(response.ok).toBe(true);
  return JSON.parse(await response.text());
}

/** Writes to a server as fast as it responds. The returned collections show what it has acknowledged so far. */
function startWriters(url: string) {
  const titles = new Map<number, string>();
  const done = new Set<number>();
  let stopped = false;
  const write = async (writer: number): Promise<void> => {
    for (let i = 0; !stopped; i++) {
      const { id, title } = await send("POST", `${url}/api/todos`, { title: `${writer}.${i}` });
      titles.set(id, title);
      if (i % 2 === 0) continue;
      await send("PATCH", `${url}/api/todos/${id}`, { done: true });
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

test("a backup that is made during concurrent writes of 8 clients contains all earlier acknowledged writes, without gaps", async () => {
  const [path, file, copy] = [newPath(), newPath(), newPath()];
  const before = { titles: new Map<number, string>(), done: new Set<number>() };
  let written: ReadonlyMap<number, string> = new Map();
  let position = "";
  {
    await using server = serve(path);
    const writers = startWriters(await server.url);
    while (writers.titles.size < 500) await Bun.sleep(5);
    for (const [id, title] of writers.titles) before.titles.set(id, title);
    for (const id of writers.done) before.done.add(id);
    const saved = await ran("backup", file, ...on(path));
    expect(saved).toEqual({
      code: 0,
      stdout: expect.stringMatching(/^backed up \d+ to-dos, \d+ bytes, position [0-9a-f]{16}-\d+\n$/),
      stderr: "",
    });
    position = saved.stdout.split(" ").at(-1)?.trim() ?? "";
    await writers.stop();
    written = writers.titles;
    expect(left(file)).toEqual([""]);
  }
  const { code, stdout } = await ran("restore", file, ...on(copy));
  expect(code).toBe(0);
  expect(stdout).toStartWith("restored ");
  expect(left(copy)).toEqual([""]);

  await using server = serve(copy);
  const todos = await listTodos(await server.url);
  expect(stdout).toStartWith(`restored ${todos.length} to-dos, ${statSync(file).size} bytes, position `);
  expect(todos.map(({ id }) => id)).toEqual(todos.map((_, index) => index + 1));
  expect(todos.filter(({ id, title }) => written.get(id) !== title)).toEqual([]);
  expect([...before.titles].filter(([id, title]) => todos[id - 1]?.title !== title)).toEqual([]);
  expect([...before.done].filter((id) => todos[id - 1]?.done !== true)).toEqual([]);
  const changes = todos.length + todos.filter(({ done }) => done).length;
  expect(position).toEndWith(`-${changes}`);
  expect(todos.length).toBeLessThan(written.size);
  expect((await send("POST", `${await server.url}/api/todos`, { title: "next" })).id).toBe(todos.length + 1);
});

describe("todo rejects, with one line,", () => {
  async function refusal(...args: readonly string[]): Promise<string> {
    const { code, stdout, stderr } = await ran(...args);
    expect([code, stdout]).toEqual([2, ""]);
    expect(stderr).toMatch(/^todo: .*\n$/);
    return stderr.slice("todo: ".length, -1);
  }

  const SQLITE = "sqlite:PATH";
  const KEPT = "sqlite:PATH or postgres://…";
  const ACCEPTED: [command: string, urls: string, args: readonly string[]][] = [
    ["backup", SQLITE, ["x.db"]],
    ["restore", SQLITE, ["x.db"]],
    ["check", SQLITE, []],
    ["export", KEPT, []],
    ["import", KEPT, []],
    ["migrate", KEPT, []],
  ];

  const KEEPS_NOTHING = "the memory store keeps nothing: name another store, such as sqlite:todos.db";

  test.each(ACCEPTED)("%s with the memory store", async (command, _urls, args) => {
    const { code, stderr } = await callTodo([command, ...args], { TODO_STORE: "memory:" });
    expect([code, stderr]).toEqual([2, `todo: TODO_STORE: ${KEEPS_NOTHING}\n`]);
  });

  test("a command without a store, or with a store of an unknown kind", async () => {
    expect(await refusal("migrate")).toBe(`--store or TODO_STORE: ${KEEPS_NOTHING}`);
    expect(await refusal("migrate", "--store", "mysql://u:hunter2@h/d")).toBe(
      `--store: there is no store of the kind "mysql:": use memory:, sqlite:PATH or postgres://…`,
    );
  });

  test.each([
    [["backup", "x.db"], "to back up PostgreSQL, run pg_dump"],
    [["restore", "x.db"], "to restore PostgreSQL, run pg_restore"],
    [["check"], "to check PostgreSQL, run pg_amcheck"],
    [["export", "--skip-damaged"], "on PostgreSQL, leave out --skip-damaged"],
  ])("PostgreSQL with todo %j, and names the alternative", async (args, hint) => {
    expect(await refusal(...args, "--store", "postgres://u:hunter2@h/d")).toBe(hint);
  });

  test.each(ACCEPTED)("%s, and offers only the stores that it accepts", async (name, urls) => {
    const help = (await ran(name, "--help")).stdout;
    expect(help.replace(/\s+/g, " ")).toContain(`store to use: ${urls} (TODO_STORE)`);
    expect(help).not.toContain("memory:");
    if (urls === SQLITE) expect(help).not.toContain("postgres:");
  });

  test("a backup without a file name, of a missing store, and over an existing file", async () => {
    expect(await refusal("backup")).toBe("missing required argument 'file'");
    const [path, file] = [newPath(), newPath()];
    expect(await refusal("backup", file, ...on(path))).toBe(
      `${path} does not exist: check the path of the store`,
    );
    writeFileSync(file, "not a database, ".repeat(1000));
    expect(await refusal("restore", file, ...on(path))).toStartWith(
      `${file}: file is not a database: name another file`,
    );
    expect([left(path), left(file)]).toEqual([[], [""]]);
    await (await openSqlite(path)).close();
    expect(await refusal("backup", file, ...on(path))).toContain(`${file} already exists`);
  });
});

test("todo backup and todo restore count one to-do in the singular, and name the old store and its keys", async () => {
  const [path, file] = [newPath(), newPath()];
  const store = await openSqlite(path);
  await store.insert("a");
  const phone = await createKey(store.keys, "phone", undefined, Date.now());
  // Neither a link nor an expired key is valid, and only the second one is listed.
  await createKey(store.keys, "old", 1000, Date.now() - 2000);
  await createLink(store.keys, { kind: "key", id: phone?.key.id ?? "" }, "write", Date.now());
  await store.close();
  expect((await ran("backup", file, ...on(path))).stdout).toStartWith("backed up 1 to-do, ");
  writeFileSync(path, "");
  const { code, stdout } = await ran("restore", file, ...on(path));
  expect(code).toBe(0);
  expect(stdout).toStartWith("restored 1 to-do, ");
  expect(stdout).toContain("\n1 API key is valid, as at the time of the backup: ");
  expect(stdout).toContain(`moved the old store to ${path}.`);
});
