import { Database } from "bun:sqlite";
import { describe, expect, setDefaultTimeout, test } from "bun:test";
import { randomBytes } from "node:crypto";
import { copyFileSync, readFileSync, renameSync, rmSync, truncateSync, writeFileSync } from "node:fs";
import { mkdir, readdir } from "node:fs/promises";
import { join } from "node:path";
import { openSqlite } from "../src/storage/sqlite/store.ts";
import { run, runTodo } from "./command.ts";
import { whyNoMount } from "./mount.ts";
import { listTodos, postTodo } from "./served-todos.ts";
import { serveFile, stop } from "./server.ts";
import { skipFor } from "./skip.ts";
import { temporaryFolder } from "./temporary.ts";
import { until } from "./until.ts";

const ROUNDS = Number(process.env.TODO_TEST_LOST_FILE_ROUNDS ?? 2);
const WRITERS = 8;
/** How many writes are acknowledged before the files are changed. */
const BEFORE = 50;
/** How many answers the test waits for after that. */
const AFTER = 100;
/** The server checks its files once a second, and writes the rescue file after the second check. */
const NOTICE_MS = 5000;

setDefaultTimeout(60_000 + ROUNDS * 30_000);
const folder = temporaryFolder();

function runSql(path: string, sql: string): void {
  using database = new Database(path);
  database.run("PRAGMA busy_timeout = 5000");
  database.run(sql);
}

describe(`in ${ROUNDS} rounds, an operator who does what the server says loses nothing after`, () => {
  const overwrite = (file: string): void => writeFileSync(file, randomBytes(readFileSync(file).length));
  const newPath = async (what: string, round: number): Promise<string> => {
    const data = join(folder, `${what} followed ${round}`.replaceAll(" ", "-"));
    await mkdir(data);
    return join(data, "todos.db");
  };

  test.each<[what: string, change: (path: string) => void]>([
    ["a truncated database", (path) => truncateSync(path)],
    ["a removed database", (path) => rmSync(path)],
    ["an overwritten database", overwrite],
    ["a truncated WAL", (path) => truncateSync(`${path}-wal`)],
    ["a removed WAL", (path) => rmSync(`${path}-wal`)],
    ["an overwritten WAL", (path) => overwrite(`${path}-wal`)],
    ["a removed lock", (path) => rmSync(`${path}-lock`)],
    ["SQL of another program", (path) => runSql(path, "DELETE FROM todos WHERE id % 2 = 0")],
  ])("%s, for which the server names a rescue file", async (what, change) => {
    for (let round = 0; round < ROUNDS; round++) {
      const path = await newPath(what, round);
      expect(await lostAfterRescue(path, change)).toEqual({ lost: [], isNoticed: true });
    }
  });

  const copyBack = (path: string, ...suffixes: readonly string[]): void => {
    for (const suffix of suffixes) writeFileSync(path + suffix, readFileSync(`${path}.old${suffix}`));
  };

  // The server continues: it writes the mark again, and SQLite may write all pages of the WAL again.
  test.each<[what: string, change: (path: string) => void]>([
    ["an old copy of the whole store", (path) => copyBack(path, "", "-wal", "-mark")],
    ["an old copy of the mark", (path) => copyBack(path, "-mark")],
    ["a truncated mark", (path) => truncateSync(`${path}-mark`)],
    ["a removed mark", (path) => rmSync(`${path}-mark`)],
  ])("%s", async (what, change) => {
    for (let round = 0; round < ROUNDS; round++) {
      const path = await newPath(what, round);
      expect((await lostAfterRescue(path, change)).lost).toEqual([]);
    }
  });
});

/** Changes files under load, then does what the log says: stops the server, restores the rescue file and starts the server. */
async function lostAfterRescue(path: string, change: (path: string) => void) {
  const load = new Load();
  let restore: readonly string[] = [];
  let hasContinued = false;
  const store = await openSqlite(path);
  // Their pages are in the database and not in the WAL.
  await Promise.all(Array.from({ length: 5000 }, (_, i) => store.insert(`${i}`)));
  await store.close();
  {
    await using server = serveFile(path);
    const url = await server.url;
    const writers = Array.from({ length: WRITERS }, () => load.write(url));
    await until(() => load.acknowledged.size >= BEFORE, "writes are acknowledged");
    for (const suffix of ["", "-wal", "-mark"]) copyFileSync(path + suffix, `${path}.old${suffix}`);
    await until(() => load.acknowledged.size >= 2 * BEFORE, "more writes are acknowledged");
    change(path);
    const changed = performance.now();
    await until(async () => {
      expect((await listTodos(url)).length).toBeGreaterThanOrEqual(2 * BEFORE);
      restore = /todo (restore \S+ --store \S+),/.exec(server.stdout())?.[1]?.split(" ") ?? [];
      hasContinued = restore.length === 0 && performance.now() > changed + NOTICE_MS;
      return restore.length > 0 || hasContinued;
    }, "the log names the rescue file, or writes are acknowledged again");
    if (!hasContinued) expect((await fetch(`${url}/readyz`)).status).toBe(503);
    server.kill(hasContinued ? "SIGKILL" : "SIGTERM");
    expect(await server.exited).toBe(hasContinued ? undefined : 0);
    await Promise.all(writers);
    // SQLite moves a removed WAL, which it has open, to the database when the server stops.
    if (server.stdout().includes("right again: do not restore")) restore = [];
  }
  if (restore.length > 0) {
    await using command = runTodo(restore);
    expect([await command.exited, command.stderr()]).toEqual([0, ""]);
  }
  await using again = serveFile(path);
  const found = new Map((await listTodos(await again.url)).map(({ id, title }) => [id, title]));
  const lost = [...load.acknowledged].filter(([id, title]) => found.get(id) !== title);
  return { lost, isNoticed: !hasContinued };
}

test.skipIf(skipFor(whyNoMount))("every command refuses a mounted database and creates no file", async () => {
  const data = join(folder, "my data");
  await mkdir(data);
  const [path, file] = [join(data, "todos.db"), join(data, "new.ndjson")];
  const store = ["--store", `sqlite:${path}`];
  await Bun.write(path, "");
  expect(await run(["mount", "--bind", path, path]).exited).toBe(0);
  try {
    for (const args of [
      ["serve", "--port", "0", ...store],
      ["doctor", ...store],
      ["keys", "create", "ci", ...store],
      ["export", file, ...store],
      ["import", "/dev/null", ...store],
      ["backup", file, ...store],
      ["restore", path, ...store],
      ["migrate", ...store],
      ["check", path],
    ]) {
      await using command = runTodo(args);
      const isRefused = (await command.exited) !== 0;
      expect([args[0], isRefused, command.stdout() + command.stderr()]).toEqual([
        args[0],
        true,
        expect.stringContaining("mount its folder instead"),
      ]);
    }
    expect(await readdir(data)).toEqual(["todos.db"]);
  } finally {
    await run(["umount", "-l", path]).exited;
  }
});

test("a server accepts writes again after its folder was moved away and back under load", async () => {
  const [data, elsewhere] = [join(folder, "data"), join(folder, "elsewhere")];
  await mkdir(data);
  const path = join(data, "todos.db");
  const load = new Load();
  await using server = serveFile(path);
  const url = await server.url;
  const writers = Array.from({ length: WRITERS }, () => load.write(url));
  const moreAcknowledged = async (count: number): Promise<void> => {
    const enough = load.acknowledged.size + count;
    await until(() => load.acknowledged.size >= enough, "writes are acknowledged");
  };
  for (let move = 0; move < ROUNDS * 20; move++) {
    await moreAcknowledged(5);
    const answers = load.answers;
    renameSync(data, elsewhere);
    // Half of the moves take a moment only, so that a transaction is under way.
    if (move % 2 === 0) await until(() => load.answers >= answers + AFTER, "writes are answered");
    renameSync(elsewhere, data);
  }
  await moreAcknowledged(BEFORE);
  // The list does not have what is acknowledged while it is read.
  const acknowledged = [...load.acknowledged];
  const found = new Map((await listTodos(url)).map(({ id, title }) => [id, title]));
  expect(acknowledged.filter(([id, title]) => found.get(id) !== title)).toEqual([]);
  await stop(server);
  await Promise.all(writers);
  await using again = serveFile(path);
  expect((await listTodos(await again.url)).length).toBeGreaterThanOrEqual(found.size);
});

class Load {
  readonly acknowledged = new Map<number, string>();
  answers = 0;
  #titles = 0;

  /** Creates to-dos until the server is gone. */
  async write(url: string): Promise<void> {
    while (true) {
      const title = `${++this.#titles}`;
      let response: Response;
      try {
        response = await postTodo(url, title);
      } catch {
        return;
      }
      expect(response.status).toBeOneOf([201, 503]);
      const body = await response.text().catch(() => undefined);
      if (body === undefined) return;
      this.answers++;
      if (response.status === 201) this.acknowledged.set(JSON.parse(body).id, title);
    }
  }
}
