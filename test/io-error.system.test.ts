import { describe, expect, test } from "bun:test";
import { statSync } from "node:fs";
import { openSqlite } from "../src/storage/sqlite/store.ts";
import type { Command } from "./command.ts";
import { integrity } from "./integrity.ts";
import { statusAndCode } from "./problem.ts";
import { listTodos, postTodo, type ServedTodo } from "./served-todos.ts";
import { kill, serveFile } from "./server.ts";
import { skipFor } from "./skip.ts";
import { serveTraced, whyUntraceable } from "./strace.ts";
import { storePathsIn } from "./temporary.ts";
import { until } from "./until.ts";

const WRITERS = 8;
const POSTS = 40;
const SYNCS = "fsync,fdatasync";

/** Longer than the server waits before it answers a write with 503. */
const FSYNC_SECONDS = 25;
/** The third fsync of the log by a thread is slow. The first commit, which creates the log, makes two. */
const SLOWLY = `inject=${SYNCS}:delay_exit=${FSYNC_SECONDS * 1_000_000}:when=3`;

const newPath = storePathsIn();

function serveFailing(path: string, calls: string, fault: string): Command {
  const inject = ["-e", `trace=${calls}`, "-e", `inject=${calls}:${fault}`];
  return serveTraced(path, ["-o", "/dev/null", ...filesOf(path), ...inject]);
}

const filesOf = (path: string): readonly string[] => ["-P", path, "-P", `${path}-wal`];

describe.skipIf(skipFor(whyUntraceable))("a disk", () => {
  // The thread that reads the file at start makes fewer of these calls.
  test.each<[when: string, calls: string, fault: string, isRecoverable: boolean]>([
    ["that sometimes fails an fsync", SYNCS, "error=EIO:when=12+7", true],
    ["that fails every fsync for a while", SYNCS, "error=EIO:when=12..30", true],
    ["that fails every fsync from then on", SYNCS, "error=EIO:when=12+", false],
    ["that sometimes fails a write", "pwrite64", "error=EIO:when=60+37", true],
    ["that fails every write for a while", "pwrite64", "error=ENOSPC:when=60..90", true],
    ["that fails every write from then on", "pwrite64", "error=ENOSPC:when=60+", false],
  ])("%s: responses match the stored data, and reads succeed", async (_when, calls, fault, isRecoverable) => {
    const path = newPath();
    const created = new Map<number, string>();
    const refused = new Set<string>();
    const answers: boolean[] = [];
    {
      await using server = serveFailing(path, calls, fault);
      const url = await server.url;
      const write = async (writer: number): Promise<void> => {
        for (let i = 0; i < POSTS; i++) {
          const title = `${writer}.${i}`;
          const response = await postTodo(url, title);
          answers.push(response.ok);
          if (response.ok) {
            const { id }: ServedTodo = JSON.parse(await response.text());
            expect(created.has(id)).toBe(false);
            created.set(id, title);
          } else {
            expect(response.headers.get("retry-after")).toMatch(/^\d+$/);
            expect(await statusAndCode(response)).toEqual([503, "store_unavailable"]);
            refused.add(title);
            expect((await listTodos(url)).map(({ title }) => title)).not.toContain(title);
          }
        }
      };
      await Promise.all(Array.from({ length: WRITERS }, (_, writer) => write(writer)));
      expect(answers).toContain(true);
      expect(answers).toContain(false);
      if (isRecoverable) expect(answers.lastIndexOf(true)).toBeGreaterThan(answers.indexOf(false));
      expect(await listTodos(url)).toMatchObject(inOrder(created));
      await kill(server);
      expect(server.stdout()).toContain('"msg":"request failed"');
    }
    await using server = serveFile(path);
    const url = await server.url;
    const todos = await listTodos(url);
    expect(todos.slice(0, created.size)).toMatchObject(inOrder(created));
    // The write of the last rejected request is complete in the file. Only the server could not know whether it is durable.
    expect(todos.slice(created.size).filter(({ title }) => !refused.has(title))).toEqual([]);
    expect(todos.map(({ id }) => id)).toEqual(todos.map((_, index) => index + 1));
    expect(JSON.parse(await (await postTodo(url, "after")).text())).toMatchObject({ id: todos.length + 1 });
    await kill(server);
    expect(integrity(path)).toBe("ok");
  });

  test("that fails: creates one to-do for a POST and its retry with the same key", async () => {
    const path = newPath();
    const titles = Array.from({ length: 50 }, (_, index) => `${index}`);
    const postAll = (url: string) =>
      Promise.all(
        titles.map(async (title) => (await postTodo(url, title, { "Idempotency-Key": title })).status),
      );
    {
      await using server = serveFailing(path, SYNCS, "error=EIO:when=12+");
      const url = await server.url;
      for (let i = 0; i < 12; i++) await postTodo(url, "before");
      expect(await postAll(url)).toEqual(titles.map(() => 503));
      await kill(server);
    }
    await using server = serveFile(path);
    const url = await server.url;
    const there = (await listTodos(url)).filter(({ title }) => title !== "before");
    // The to-dos of the last transaction exist, and their idempotency keys return them.
    expect(there.length).toBeGreaterThan(0);
    for (const _ of [1, 2]) expect(await postAll(url)).toEqual(titles.map(() => 201));
    const now = (await listTodos(url)).filter(({ title }) => title !== "before");
    expect(now.slice(0, there.length)).toEqual(there);
    expect(now.map(({ title }) => title).toSorted()).toEqual(titles.toSorted());
  });

  const TITLES = Array.from({ length: 2000 }, (_, index) => `${index} ${"x".repeat(80)}`);
  test.each<[when: string, titles: readonly string[], calls: string, share: number]>([
    ["opens the database", TITLES, "pread64", 0],
    ["starts to read the database", TITLES, "pread64", 0.05],
    ["reads the database", TITLES, "pread64", 0.5],
    ["creates the database", [], SYNCS, 0],
    ["syncs the new database", [], SYNCS, 0.6],
    ["starts to write the new database", [], "pwrite64", 0],
    ["writes the new database", [], "pwrite64", 0.5],
  ])("that fails when the server %s: it exits and damages nothing", async (_when, titles, calls, share) => {
    const count = await countCalls(await newStore(titles), calls);
    const path = await newStore(titles);
    {
      const failing = Math.max(1, Math.ceil(count * share));
      await using server = serveFailing(path, calls, `error=EIO:when=${failing}`);
      const started = server.url.then(
        (url) => `it listens at ${url}, although call ${failing} of ${count} failed`,
        () => server.exited,
      );
      expect(await started).toBeOneOf([1, 2]);
      expect(server.stderr()).toMatch(
        (await started) === 1
          ? /^todo: --store: .*: disk I\/O error\n$/
          : /^todo: --store: .*: it is damaged \(.* is malformed; .*\): .*\n$/,
      );
      expect(server.stderr()).toContain(path);
    }
    await using server = serveFile(path);
    const url = await server.url;
    expect((await listTodos(url)).map(({ title }) => title)).toEqual([...titles]);
    expect((await postTodo(url, "after")).status).toBe(201);
  });
});

test.skipIf(skipFor(whyUntraceable))("a disk that hangs delays only writes, which get 503", async () => {
  const path = newPath();
  // The start would also sync the log of a new store.
  await (await openSqlite(path)).close();
  const options = ["-o", "/dev/null", "-P", `${path}-wal`, "-e", `trace=${SYNCS}`, "-e", SLOWLY];
  await using server = serveTraced(path, options);
  const url = await server.url;
  const post = async (title: string): Promise<number> => (await postTodo(url, title)).status;
  const statusOf = async (route: string): Promise<number> => {
    const response = await fetch(url + route, { headers: { Authorization: "Bearer unknown" } });
    await response.arrayBuffer();
    return response.status;
  };
  const reads = ["/api/todos/1", "/api/todos", "/api/todos?limit=1", "/api/whoami", "/livez"];
  const readAll = () => Promise.all(reads.map(statusOf));
  expect(await post("quick")).toBe(201);

  const began = performance.now();
  const waiting: Promise<readonly [status: number, at: number]>[] = [];
  const { size } = statSync(`${path}-wal`);
  for (const title of ["under way", "dropped"]) {
    waiting.push(post(title).then((status) => [status, performance.now()]));
    await until(() => statSync(`${path}-wal`).size > size, "a write waits for the disk");
  }
  expect(await readAll()).toEqual([200, 200, 200, 401, 200]);
  expect(await statusOf("/readyz")).toBe(200);
  await until(async () => (await statusOf("/readyz")) === 503, "/readyz fails");
  expect(await readAll()).toEqual([200, 200, 200, 401, 200]);
  for (const [status, at] of await Promise.all(waiting)) {
    expect(status).toBe(503);
    expect(at - began).toBeLessThan((FSYNC_SECONDS - 5) * 1000);
  }
  expect(await readAll()).toEqual([200, 200, 200, 401, 200]);
  await until(async () => (await post("after")) === 201, "the disk answers");
  await until(async () => (await statusOf("/readyz")) === 200, "/readyz succeeds");
  expect((await listTodos(url)).map(({ title }) => title)).toEqual(["quick", "under way", "after"]);
});

/** Returns the path of a store with these to-dos; of a missing file if there are none. */
async function newStore(titles: readonly string[]): Promise<string> {
  const path = newPath();
  if (titles.length === 0) return path;
  const store = await openSqlite(path);
  await Promise.all(titles.map((title) => store.insert(title)));
  await store.close();
  return path;
}

/** Returns how many of these calls one thread of a starting server makes; of the thread that makes the most. */
async function countCalls(path: string, calls: string): Promise<number> {
  const output = `${path}.trace`;
  {
    await using server = serveTraced(path, ["-o", output, ...filesOf(path), "-e", `trace=${calls}`]);
    await server.url;
  }
  const lines = (await Bun.file(output).text()).matchAll(/^(\d+) +\w+\(/gm);
  const threads = Map.groupBy(lines, ([, thread]) => thread);
  return Math.max(...Array.from(threads.values(), ({ length }) => length));
}

const inOrder = (todos: ReadonlyMap<number, string>): { id: number; title: string }[] =>
  Array.from(todos, ([id, title]) => ({ id, title })).toSorted((a, b) => a.id - b.id);
