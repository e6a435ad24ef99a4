import { expect, test } from "bun:test";
import { statSync } from "node:fs";
import { join } from "node:path";
import { openSqlite } from "../src/storage/sqlite/store.ts";
import { postTodo } from "./served-todos.ts";
import { skipFor } from "./skip.ts";
import { serveTraced, whyUntraceable } from "./strace.ts";
import { temporaryFolder } from "./temporary.ts";
import { until } from "./until.ts";

const folder = temporaryFolder();
const SYNCS = "fsync,fdatasync";
/** Longer than the server waits before it answers a write with 503. */
const FSYNC_SECONDS = 25;
/** The third fsync of the log by a thread is slow. The first commit, which creates the log, makes two. */
const SLOWLY = `inject=${SYNCS}:delay_exit=${FSYNC_SECONDS * 1_000_000}:when=3`;

test.skipIf(skipFor(whyUntraceable))(
  "a disk that hangs for 25 seconds delays only writes, which get 503 after 15 seconds",
  async () => {
    const path = join(folder, "todos.db");
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
    const todos: readonly { readonly title: string }[] = JSON.parse(
      await (await fetch(`${url}/api/todos`)).text(),
    );
    expect(todos.map(({ title }) => title)).toEqual(["quick", "under way", "after"]);
  },
);
