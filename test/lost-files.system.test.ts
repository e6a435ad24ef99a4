import { afterAll, describe, expect, setDefaultTimeout, test } from "bun:test";
import { copyFileSync, readFileSync, renameSync, rmSync, truncateSync } from "node:fs";
import { mkdir, mkdtemp, readdir, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type Command, run, runTodo } from "./command.ts";
import { skipFor } from "./skip.ts";
import { until } from "./until.ts";

const ROUNDS = Number(process.env.TODO_TEST_LOST_FILE_ROUNDS ?? 2);
const WRITERS = 8;
/** How many writes are acknowledged before the files are changed. */
const BEFORE = 50;
/** How many answers the test waits for after that. */
const AFTER = 100;

setDefaultTimeout(60_000 + ROUNDS * 30_000);
const folder = await mkdtemp(join(tmpdir(), "todo-lost-files-"));
const mountPoint = join(folder, "mount");
await mkdir(mountPoint);
const mount = run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", mountPoint]);
const whyNoMount = (await mount.exited) === 0 ? undefined : `mount: ${mount.stderr().split("\n")[0]}`;
afterAll(async () => {
  if (whyNoMount === undefined) await run(["umount", "-l", mountPoint]).exited;
  await rm(folder, { recursive: true });
});

const removeWal = (path: string): void => rmSync(`${path}-wal`);
const truncateWal = (path: string): void => truncateSync(`${path}-wal`);
const truncateWalPartly = (path: string): void =>
  truncateSync(`${path}-wal`, Math.floor(readFileSync(`${path}-wal`).length / 2));
const truncateDatabase = (path: string): void => truncateSync(path);
const removeLock = (path: string): void => rmSync(`${path}-lock`);

function replaceDatabase(path: string): void {
  copyFileSync(path, `${path}.copy`);
  renameSync(`${path}.copy`, path);
}

describe(`in ${ROUNDS} rounds, the server loses nothing or refuses to start after another program`, () => {
  test.each<[what: string, change: (path: string) => void]>([
    ["removed the log", removeWal],
    ["truncated the log", truncateWal],
    ["truncated half of the log", truncateWalPartly],
    ["truncated the database", truncateDatabase],
    ["replaced the database", replaceDatabase],
    ["removed the lock", removeLock],
  ])("%s", async (what, change) => {
    for (let round = 0; round < ROUNDS; round++) {
      const path = join(folder, `${what} ${round}.db`);
      await expectNoSilentLoss(path, () => change(path));
    }
  });
});

describe.skipIf(skipFor(whyNoMount))(
  `in ${ROUNDS} rounds, the server loses nothing or refuses to start after`,
  () => {
    const path = join(mountPoint, "todos.db");

    const empty = () => {
      for (const suffix of ["", "-wal", "-shm", "-lock", "-mark"]) rmSync(path + suffix, { force: true });
    };

    test("the disk was full", async () => {
      for (let round = 0; round < ROUNDS; round++) {
        empty();
        const filler = join(mountPoint, "filler");
        await expectNoSilentLoss(
          path,
          async () => void (await run(["dd", "if=/dev/zero", `of=${filler}`, "bs=64k"]).exited),
          () => rmSync(filler),
        );
      }
    });

    test("the disk was mounted read-only", async () => {
      for (let round = 0; round < ROUNDS; round++) {
        empty();
        const remount = async (mode: "ro" | "rw"): Promise<void> => {
          // Linux mostly refuses this while a file is open for writing; then the round is a plain kill.
          await run(["mount", "-o", `remount,${mode}`, mountPoint]).exited;
        };
        await expectNoSilentLoss(
          path,
          () => remount("ro"),
          () => remount("rw"),
        );
      }
    });
  },
);

test.skipIf(skipFor(whyNoMount))(
  "a database that is a mount point is refused by every command, which creates no file beside it",
  async () => {
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
        ["accept-loss", path],
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
  },
);

test("a server accepts writes again after its folder was moved away and back under load", async () => {
  const [data, elsewhere] = [join(folder, "data"), join(folder, "elsewhere")];
  await mkdir(data);
  const path = join(data, "todos.db");
  const load = new Load();
  await using server = serve(path);
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
  const found = new Map((await list(url)).map(({ id, title }) => [id, title]));
  expect([...load.acknowledged].filter(([id, title]) => found.get(id) !== title)).toEqual([]);
  server.kill("SIGTERM");
  expect(await server.exited).toBe(0);
  await Promise.all(writers);
  await using again = serve(path);
  expect((await list(await again.url)).length).toBeGreaterThanOrEqual(found.size);
});

/**
 * Runs a server under load, changes its files, kills it and starts it again. Fails if the server starts, and a write that
 * was acknowledged is missing.
 * @param repair runs after the kill and before the restart
 */
async function expectNoSilentLoss(
  path: string,
  change: () => unknown,
  repair: () => unknown = () => {},
): Promise<void> {
  const load = new Load();
  {
    await using server = serve(path);
    const url = await server.url;
    const writers = Array.from({ length: WRITERS }, () => load.write(url));
    while (load.answers < BEFORE) await Bun.sleep(1);
    await change();
    const enough = load.answers + AFTER;
    while (load.answers < enough) await Bun.sleep(1);
    server.kill("SIGKILL");
    await server.exited;
    await Promise.all(writers);
  }
  await repair();
  await using server = serve(path);
  const refusal = await server.url.then(
    () => undefined,
    () => server.stderr(),
  );
  if (refusal !== undefined) {
    expect(refusal).toMatch(/^todo: --store: \S.*\n$/);
    expect(refusal).toContain(path);
    return;
  }
  const url = await server.url;
  const found = new Map((await list(url)).map(({ id, title }) => [id, title]));
  const missing = [...load.acknowledged].filter(([id, title]) => found.get(id) !== title);
  expect(missing).toEqual([]);
}

const serve = (path: string): Command => runTodo(["serve", "--port", "0", "--store", `sqlite:${path}`]);

/** Creates to-dos, and remembers those that were acknowledged. */
class Load {
  /** The titles by id. */
  readonly acknowledged = new Map<number, string>();
  answers = 0;
  #titles = 0;

  /** Creates to-dos until the server is gone. */
  async write(url: string): Promise<void> {
    while (true) {
      const title = `${++this.#titles}`;
      let response: Response;
      try {
        response = await fetch(`${url}/api/todos`, {
          method: "POST",
          headers: { "Content-Type": "application/json" },
          body: JSON.stringify({ title }),
        });
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

async function list(url: string): Promise<readonly { readonly id: number; readonly title: string }[]> {
  return JSON.parse(await (await fetch(`${url}/api/todos`)).text());
}
