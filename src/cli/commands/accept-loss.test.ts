import { expect, test } from "bun:test";
import { copyFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import { callTodo } from "../../../test/call-todo.ts";
import { ended, runTodo } from "../../../test/command.ts";
import { temporaryFolder } from "../../../test/temporary.ts";
import { openSqlite } from "../../storage/sqlite/store.ts";
import { quoteArgument } from "../../storage/sqlite/ways-out.ts";

const folder = temporaryFolder();

const ran = (...args: readonly string[]) => callTodo(args);

async function insert(path: string, title: string): Promise<void> {
  const store = await openSqlite(path);
  await store.insert(title);
  await store.close();
}

test("todo serve refuses a store that has lost changes until todo accept-loss", async () => {
  const path = join(folder, "lost.db");
  await insert(path, "a");
  copyFileSync(path, `${path}.old`);
  await insert(path, "b");
  copyFileSync(`${path}.old`, path);

  const loss = "its last transaction is missing, with one or more acknowledged changes";
  const refused = await ended(runTodo(["serve", "--port", "0", "--store", `sqlite:${path}`]));
  expect(refused.code).toBe(2);
  expect(refused.stderr).toContain(`--store: ${path}: ${loss}`);
  expect(refused.stderr).toContain(`todo accept-loss ${quoteArgument(path)}`);

  const accepted = await ran("accept-loss", path);
  expect(accepted).toMatchObject({ code: 0, stderr: "" });
  expect(accepted.stdout).toStartWith(`accepted: ${loss}; position `);

  {
    await using server = runTodo(["serve", "--port", "0", "--store", `sqlite:${path}`]);
    const todos = await (await fetch(`${await server.url}/api/todos`)).text();
    expect(todos).toBe('[{"id":1,"title":"a","done":false}]');
    expect((await ran("accept-loss", path)).stderr).toContain("is in use by another server: stop it first");
  }

  expect(await ran("accept-loss", `sqlite:${path}`)).toEqual({
    code: 2,
    stdout: "",
    stderr: `todo: ${path} has all changes that its high-water mark counts: start the server\n`,
  });
});

test("todo serve logs that the mark is missing", async () => {
  const path = join(folder, "unmarked.db");
  await insert(path, "c");
  rmSync(`${path}-mark`);
  await using server = runTodo(["serve", "--port", "0", "--store", `sqlite:${path}`]);
  await server.url;
  expect(server.stdout()).toContain(`"reason":"${path}-mark cannot be read: it is missing"`);
});
