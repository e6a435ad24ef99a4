import { beforeAll, describe, expect, test } from "bun:test";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { type Command, runTodo } from "../../../test/command.ts";
import { createTodo } from "../../../test/served-todos.ts";
import { stop } from "../../../test/server.ts";
import { skipFor } from "../../../test/skip.ts";
import { exportOf } from "../../../test/store.ts";
import { serveTraced, whyUntraceable } from "../../../test/strace.ts";
import { temporaryFolder } from "../../../test/temporary.ts";
import { until } from "../../../test/until.ts";
import { importTodos } from "./maintenance.ts";

const TODOS = 100_000;
/** The database has about 2,000 pages. Each is read at once. */
const FEW_READS = 500;

const folder = temporaryFolder();
const path = join(folder, "todos.db");
const trace = join(folder, "trace");

beforeAll(() => {
  const { signal } = new AbortController();
  return importTodos(path, new Blob([exportOf(TODOS)]).stream(), TODOS, { signal });
});

const serve = (): Command => serveTraced(path, ["-e", "trace=pread64", "-P", path, "-o", trace]);

const countReads = (): number => readFileSync(trace, "latin1").split("pread64(").length - 1;

describe.skipIf(skipFor(whyUntraceable))("a server with a large store", () => {
  test("does not read the store again after a command has changed API keys, nor when it stops", async () => {
    writeFileSync(trace, "");
    await using server = serve();
    const url = await server.url;
    await createTodo(url, "a");
    const atStart = countReads();
    expect(atStart).toBeGreaterThan(FEW_READS);
    await using command = runTodo(["keys", "create", "ci", "--store", `sqlite:${path}`]);
    expect(await command.exited).toBe(0);
    const headers = { Authorization: `Bearer ${command.stdout().trim().split(/\s/).at(-1)}` };
    await until(async () => (await fetch(`${url}/api/whoami`, { headers })).ok, "the server knows the key");
    await createTodo(url, "a");
    // Long enough for a check of the files.
    await Bun.sleep(1500);
    await createTodo(url, "a");
    await stop(server);
    expect(countReads() - atStart).toBeLessThan(FEW_READS);
  });
});
