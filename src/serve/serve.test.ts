import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type Command, runTodo } from "../../test/command.ts";
import {
  type Databases,
  openDatabases,
  type Postgres,
  startPostgres,
  whyNoDatabase,
} from "../../test/postgres.ts";
import { skipFor } from "../../test/skip.ts";
import { readConfig } from "../config/config.ts";
import { getOwnHost } from "./serve.ts";

const serve = (store: string, ...args: readonly string[]): Command =>
  runTodo(["serve", "--port", "0", ...args], { TODO_STORE: store });

async function outcome(store: string, ...args: readonly string[]) {
  await using command = serve(store, ...args);
  return { code: await command.exited, stdout: command.stdout(), stderr: command.stderr() };
}

test.each([
  ["todo.example.com", "todo.example.com:3000"],
  ["0.0.0.0", "127.0.0.1:3000"],
  ["fe80::1", "[fe80::1]:3000"],
])("a server on %s has the own host %s", (host, expected) => {
  expect(getOwnHost(readConfig({ host }, {}))).toBe(expected);
});

describe("todo serve with a file", () => {
  const folder = mkdtempSync(join(tmpdir(), "todo-serve-"));
  afterAll(() => rmSync(folder, { recursive: true }));

  test("whose folder is missing exits with 1, and serves after the folder is mounted", async () => {
    const mount = join(folder, "mount");
    const path = join(mount, "todos.db");
    expect(await outcome(`sqlite:${path}`)).toEqual({
      code: 1,
      stdout: "",
      stderr: `todo: TODO_STORE: ${path}: check that its folder exists, and that its disk is mounted\n`,
    });
    mkdirSync(mount);
    await using server = serve(`sqlite:${path}`);
    expect((await fetch(`${await server.url}/readyz`)).status).toBe(200);
  });

  test("that another server uses exits with 1", async () => {
    const path = join(folder, "used.db");
    await using server = serve(`sqlite:${path}`);
    await server.url;
    const stderr = `todo: TODO_STORE: ${path} is in use by another server: stop it first\n`;
    expect(await outcome(`sqlite:${path}`)).toEqual({ code: 1, stdout: "", stderr });
  });

  test("whose folder for backups is missing exits with 1", async () => {
    const backups = join(folder, "backups");
    const { code, stderr } = await outcome(`sqlite:${join(folder, "new.db")}`, "--backup-dir", backups);
    const expected = `todo: --backup-dir "${backups}": no such file or folder\n`;
    expect([code, stderr]).toEqual([1, expected]);
  });

  test("that is not a database exits with 2", async () => {
    const path = join(folder, "notes.txt");
    writeFileSync(path, "not a database, ".repeat(100));
    expect(await outcome(`sqlite:${path}`)).toMatchObject({ code: 2, stderr: expect.stringContaining(path) });
  });

  test("whose folder is a file exits with 2", async () => {
    writeFileSync(join(folder, "file"), "");
    const { code, stderr } = await outcome(`sqlite:${join(folder, "file", "todos.db")}`);
    expect([code, stderr]).toEqual([
      2,
      expect.stringContaining("a part of the path is a file, not a folder"),
    ]);
  });
});

describe("todo serve with a database", () => {
  test("that cannot be reached exits with 1, so that a supervisor starts it again", async () => {
    const stderr =
      "todo: TODO_STORE: 127.0.0.1:1: Failed to connect; check that PostgreSQL is running, and the host and port of the URL\n";
    const { code, ...said } = await outcome("postgres://todo:s3cret@127.0.0.1:1/todos");
    expect([code, said]).toEqual([1, { stdout: "", stderr }]);
  });

  /** The server, unless it must not be stopped. */
  let postgres: Postgres | undefined;
  let databases: Databases;
  beforeAll(async () => {
    if (whyNoDatabase !== undefined) return;
    postgres = whyNoDatabase === undefined ? await startPostgres({ fsync: "off" }) : undefined;
    databases = postgres ?? (await openDatabases());
  });
  afterAll(() => databases?.[Symbol.asyncDispose]());

  test.skipIf(skipFor(whyNoDatabase))("serves at the first start after the database is up", async () => {
    const store = await databases.newDatabase();
    await postgres?.stop("in order");
    expect((await outcome(store)).code).toBe(1);
    await postgres?.start();
    await using server = serve(store);
    expect((await fetch(`${await server.url}/readyz`)).status).toBe(200);
  });

  test.skipIf(skipFor(whyNoDatabase))(
    "warns that other replicas do not accept its generated credentials, until a key exists",
    async () => {
      const store = await databases.newDatabase();
      for (const isWarned of [true, false]) {
        await using server = serve(store);
        await server.url;
        server.kill("SIGTERM");
        expect(await server.exited).toBe(0);
        expect(server.stdout().includes("each replica generates its own credentials")).toBe(isWarned);
        await using create = runTodo(["keys", "create", isWarned ? "first" : "second", "--store", store]);
        expect(await create.exited).toBe(0);
      }
    },
  );

  test.skipIf(skipFor(whyNoDatabase))("that rejects the URL exits with 2", async () => {
    const url = new URL(await databases.newDatabase());
    const absent = new URL(url);
    absent.pathname = "/absent";
    const wrong = new URL(url);
    wrong.password = "wrong";
    expect(await outcome(absent.href)).toMatchObject({ code: 2, stderr: expect.stringContaining("absent") });
    expect(await outcome(wrong.href)).toMatchObject({ code: 2, stderr: expect.stringContaining("password") });
  });
});
