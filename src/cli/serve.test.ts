import { describe, expect, test } from "bun:test";
import { type Command, runTodo } from "../../test/command.ts";
import { openDatabases, startPostgres, whyNoDatabase, whyNoServer } from "../../test/postgres.ts";
import { skipFor } from "../../test/skip.ts";

const serve = (store: string): Command => runTodo(["serve", "--port", "0"], { TODO_STORE: store });

describe("todo serve with a database", () => {
  async function outcome(store: string) {
    await using command = serve(store);
    return { code: await command.exited, stdout: command.stdout(), stderr: command.stderr() };
  }

  test("that cannot be reached exits with 1, so that a supervisor starts it again", async () => {
    const stderr = "todo: TODO_STORE: 127.0.0.1:1: Failed to connect\n";
    const { code, ...said } = await outcome("postgres://todo:s3cret@127.0.0.1:1/todos");
    expect([code, said]).toEqual([1, { stdout: "", stderr }]);
  });

  test.skipIf(skipFor(whyNoServer))("serves at the first start after the database is up", async () => {
    await using postgres = await startPostgres();
    const store = await postgres.newDatabase();
    await postgres.stop("in order");
    expect((await outcome(store)).code).toBe(1);
    await postgres.start();
    await using server = serve(store);
    expect((await fetch(`${await server.url}/readyz`)).status).toBe(200);
  });

  test.skipIf(skipFor(whyNoDatabase))("that rejects the URL exits with 2", async () => {
    await using databases = await openDatabases();
    const url = new URL(await databases.newDatabase());
    const absent = new URL(url);
    absent.pathname = "/absent";
    const wrong = new URL(url);
    wrong.password = "wrong";
    expect(await outcome(absent.href)).toMatchObject({ code: 2, stderr: expect.stringContaining("absent") });
    expect(await outcome(wrong.href)).toMatchObject({ code: 2, stderr: expect.stringContaining("password") });
  });
});
