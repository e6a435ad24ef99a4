import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { chmod, cp, unlink } from "node:fs/promises";
import { join } from "node:path";
import { openSqlite } from "../src/storage/sqlite/store.ts";
import { type Command, ended, run, runTodo } from "./command.ts";
import { mountMemory, whyNoMount } from "./mount.ts";
import { startPostgres, whyNoDatabase } from "./postgres.ts";
import { LONGEST_TITLE } from "./raw-http.ts";
import { listTodos, postTodo } from "./served-todos.ts";
import { kill, scrape, serve, serveFile } from "./server.ts";
import { skipFor } from "./skip.ts";
import { temporaryFolder } from "./temporary.ts";
import { until } from "./until.ts";

const REFUSED_WRITES = 500;

async function post(url: string): Promise<number> {
  const response = await postTodo(url, LONGEST_TITLE);
  await response.arrayBuffer();
  return response.status;
}

const ids = async (url: string): Promise<number[]> => (await listTodos(url)).map(({ id }) => id);

const upTo = (last: number): number[] => Array.from({ length: last }, (_, index) => index + 1);

test.skipIf(skipFor(whyNoMount))("a full disk fails only writes, and only until space is free", async () => {
  await using disk = await mountMemory("size=4m");
  const filler = join(disk.folder, "filler");
  const store = `sqlite:${join(disk.folder, "todos.db")}`;
  await Bun.write(filler, new Uint8Array(2 * 1024 * 1024));
  let stored = 0;
  {
    await using server = serve(["--metrics-port", "0", "--store", store]);
    const url = await server.url;
    for (let i = 0; i < 20_000 && (await post(url)) === 201; i++) stored++;
    expect(stored).toBeGreaterThan(10);
    const started = performance.now();
    const refused = await Promise.all(Array.from({ length: REFUSED_WRITES }, () => post(url)));
    expect(new Set(refused)).toEqual(new Set([503]));
    const intervals = Math.ceil((performance.now() - started) / 10_000);
    expect(server.stdout().split('"request failed"').length - 1).toBeWithin(1, 3 + intervals);
    expect(await ids(url)).toEqual(upTo(stored));
    const { isWritable, isReady } = health(server, url);
    // Long enough for two checks of the files.
    const checks = performance.now() + 2500;
    do expect([await isWritable(), await isReady()]).toEqual([false, false]);
    while (performance.now() < checks);
    await unlink(filler);
    await until(isWritable, "the store is writable without another write");
    expect(await isReady()).toBe(true);
    expect(await post(url)).toBe(201);
    stored++;
    await kill(server);
    expect(server.stdout()).toContain("store_unavailable");
    expect(server.stdout()).not.toContain("rescue");
  }
  await using server = serve(["--store", store]);
  expect(await ids(await server.url)).toEqual(upTo(stored));
});

function health(server: Command, url: string) {
  return {
    isWritable: async (): Promise<boolean> => /^todo_store_writable 1$/m.test(await scrape(server)),
    isReady: async (): Promise<boolean> => (await fetch(`${url}/readyz`)).ok,
  };
}

test.skipIf(skipFor(whyNoMount) || skipFor(whyNoDatabase))(
  "a server whose PostgreSQL has a full disk is not ready, and is ready when space is free",
  async () => {
    // Without vacuum, no space becomes free by itself.
    await using postgres = await startPostgres({ fsync: "off", autovacuum: "off" });
    await using disk = await mountMemory("size=32m,mode=755");
    const [pages, filler] = [join(disk.folder, "pages"), join(disk.folder, "filler")];
    // PostgreSQL runs as nobody, because it does not run as root.
    expect(await run(["install", "-d", "-o", "nobody", pages]).exited).toBe(0);
    await postgres.query(`CREATE TABLESPACE small LOCATION '${pages}'`);
    const store = await postgres.newDatabase("TABLESPACE small");
    await using server = serve(["--metrics-port", "0", "--store", store]);
    const url = await server.url;
    expect(await post(url)).toBe(201);
    await run(["dd", "if=/dev/zero", `of=${filler}`, "bs=4k"]).exited;
    let stored = 1;
    while ((await post(url)) === 201) stored++;
    const { isWritable, isReady } = health(server, url);
    for (const _ of [1, 2]) expect([await isReady(), await isWritable()]).toEqual([false, false]);
    expect(await ids(url)).toEqual(upTo(stored));
    await unlink(filler);
    await until(isWritable, "the store is writable without another write");
    expect(await isReady()).toBe(true);
    expect([await post(url), await ids(url)]).toEqual([201, upTo(stored + 1)]);
  },
);

test.skipIf(skipFor(whyNoMount))("a start on a full disk exits with 1 until space is free", async () => {
  await using disk = await mountMemory("size=4m");
  const filler = join(disk.folder, "filler");
  const store = `sqlite:${join(disk.folder, "new.db")}`;
  await run(["dd", "if=/dev/zero", `of=${filler}`, "bs=64k"]).exited;
  await using full = serve(["--store", store]);
  expect([await full.exited, full.stderr()]).toEqual([1, expect.stringMatching(/^todo: --store: .*\n$/)]);
  await unlink(filler);
  await using server = serve(["--store", store]);
  expect(await ids(await server.url)).toEqual([]);
});

test.skipIf(skipFor(whyNoMount))("a start without inodes says which file, why, and what to do", async () => {
  // The folder is the first one.
  await using disk = await mountMemory("nr_inodes=1");
  const path = join(disk.folder, "todos.db");
  await using server = serveFile(path);
  expect([await server.exited, server.stderr()]).toEqual([
    1,
    `todo: --store: ${path}-lock: no space left on device: free some space\n`,
  ]);
});

const folder = temporaryFolder();
// Permissions do not bind root, who can mount where the kernel allows it.
const whyWritable = process.getuid?.() === 0 ? whyNoMount : undefined;
const disk = whyNoMount === undefined ? await mountMemory("size=16m") : undefined;
const media = disk?.folder ?? temporaryFolder();
const reason = disk === undefined ? "you have no permission to write" : "the file system is read-only";

/** A store whose server stopped, and one whose server was killed: its latest to-do is in the WAL only. */
const stopped = join(media, "stopped.db");
const killed = join(media, "killed.db");

beforeAll(async () => {
  const store = await openSqlite(stopped);
  await store.insert("first");
  await store.close();
  const running = await openSqlite(stopped);
  await running.insert("second");
  for (const suffix of ["", "-wal"]) await cp(stopped + suffix, killed + suffix);
  await running.close();
  if (disk === undefined) await chmod(media, 0o555);
  else await run(["mount", "-o", "remount,ro", media]).exited;
});

afterAll(() => disk?.[Symbol.asyncDispose]() ?? chmod(media, 0o755));

describe.skipIf(skipFor(whyWritable))("a store on read-only media", () => {
  test.each([
    ["serve", ["serve", "--port", "0"], 1],
    ["keys create", ["keys", "create", "bob"], 1],
    ["import", ["import", "/dev/null"], 1],
  ])("is refused by todo %s with the reason", async (_what, args, expected) => {
    for (const path of [stopped, killed]) {
      const { code, stdout, stderr } = await ended(runTodo([...args, "--store", `sqlite:${path}`]));
      expect({ code, stdout }).toEqual({ code: expected, stdout: "" });
      expect(stderr).toStartWith("todo: ");
      expect(stderr).toContain(reason);
    }
  });

  test.each([
    ["stopped", stopped],
    ["killed", killed],
  ])("is complete, with the latest writes of its %s server, in a copy", async (what, path) => {
    const copy = join(folder, `${what}-copy.db`);
    await cp(path, copy);
    if (await Bun.file(`${path}-wal`).exists()) await cp(`${path}-wal`, `${copy}-wal`);
    const { code, stdout } = await ended(runTodo(["export", "--store", `sqlite:${copy}`]));
    expect(code).toBe(0);
    expect(stdout.split("\n").slice(1, -1)).toEqual([
      '{"id":1,"title":"first","done":false}',
      '{"id":2,"title":"second","done":false}',
    ]);
  });
});
