import { Database } from "bun:sqlite";
import { describe, expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { callTodo } from "../../../test/call-todo.ts";
import { storePathsIn } from "../../../test/temporary.ts";
import { openSqlite } from "../../storage/sqlite/store.ts";

const newPath = storePathsIn();

async function makeStore(sql?: string): Promise<string> {
  const path = newPath();
  const store = await openSqlite(path);
  for (const title of ["a", "b", "c"]) await store.insert(title);
  await store.close();
  if (sql === undefined) return path;
  const database = new Database(path);
  database.run(sql);
  database.close();
  return path;
}

const SOUND = /^structure: ok\ncontents: ok\nhistory: ok\n(?:mark: .*\n)?$/;

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
      expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
      expect(stdout).toMatch(SOUND);
    }
  });

  test("exits with 1 and prints what is damaged", async () => {
    const path = await makeStore("UPDATE todos SET json = replace(json, 'false', 'true') WHERE id = 2");
    const { code, stdout } = await callTodo(["check", path]);
    expect(code).toBe(1);
    expect(stdout).toStartWith("structure: ok\ncontents: damaged: the to-do 2 is damaged\n");
  });

  test("--json prints each check as a line", async () => {
    const { code, stdout } = await callTodo([
      "check",
      "--json",
      await makeStore("UPDATE todos SET json = replace(json, 'false', 'true')"),
    ]);
    expect(code).toBe(1);
    expect(
      stdout
        .trimEnd()
        .split("\n")
        .map((line) => JSON.parse(line)),
    ).toEqual([
      { name: "structure", status: "ok", text: "ok" },
      {
        name: "contents",
        status: "damaged",
        text: "the to-do 1 is damaged",
      },
      { name: "history", status: "ok", text: "ok" },
      { name: "mark", status: "ok", text: expect.any(String) },
    ]);
  });

  test("exits with 2 if the file does not exist", async () => {
    const path = newPath();
    const { code, stdout, stderr } = await callTodo(["check", path]);
    expect({ code, stdout }).toEqual({ code: 2, stdout: "" });
    expect(stderr).toBe(`todo: ${path} does not exist: check the path of the store\n`);
  });
});

describe("todo export --skip-damaged", () => {
  test("exits with 3, and prints on standard error what it omitted", async () => {
    const path = await makeStore("UPDATE todos SET json = 'no JSON' WHERE id = 2");
    const { code, stdout, stderr } = await callTodo([
      "export",
      "--skip-damaged",
      "--store",
      `sqlite:${path}`,
    ]);
    expect(code).toBe(3);
    expect(stderr).toBe(
      "todo: left out what is damaged: the to-do 2 is damaged\nexported 2 to-dos, the last id is 3\n",
    );
    expect(stdout.split("\n").slice(1, -1)).toEqual([
      '{"id":1,"title":"a","done":false}',
      '{"id":3,"title":"c","done":false}',
    ]);
    const file = newPath();
    expect((await callTodo(["export", "--skip-damaged", file, "--store", `sqlite:${path}`])).code).toBe(3);
    expect(readFileSync(file, "utf8")).toBe(stdout);
  });
});

test("todo check rejects a store that is not a SQLite file", async () => {
  for (const url of ["memory:", "postgres://u:hunter2@h/d"]) {
    expect(await callTodo(["check", url])).toEqual({
      code: 2,
      stdout: "",
      stderr: `todo: todo check is for SQLite files: give PATH or sqlite:PATH\n`,
    });
  }
});
