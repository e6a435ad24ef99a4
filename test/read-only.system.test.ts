import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { chmod, cp, mkdir, mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { openSqlite } from "../src/storage/sqlite/store.ts";
import { ended, run, runTodo } from "./command.ts";
import { skipFor } from "./skip.ts";

const folder = await mkdtemp(join(tmpdir(), "todo-read-only-"));
const media = join(folder, "media");
await mkdir(media);
const mount = run(["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", media]);
const isMounted = (await mount.exited) === 0;
// Permissions do not bind root, who can mount where the kernel allows it.
const whyWritable =
  isMounted || process.getuid?.() !== 0 ? undefined : `mount: ${mount.stderr().split("\n")[0]}`;
const reason = isMounted ? "the file system is read-only" : "you have no permission to write";

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
  if (isMounted) await run(["mount", "-o", "remount,ro", media]).exited;
  else await chmod(media, 0o555);
});

afterAll(async () => {
  if (isMounted) await run(["umount", "-l", media]).exited;
  else await chmod(media, 0o755);
  await rm(folder, { recursive: true });
});

const todo = (...args: readonly string[]) => ended(runTodo(args));

describe.skipIf(skipFor(whyWritable))("a store on read-only media", () => {
  test.each([
    ["serve", ["serve", "--port", "0"], 1],
    ["keys create", ["keys", "create", "bob"], 1],
    ["import", ["import", "/dev/null"], 1],
  ])("is refused by todo %s with the reason", async (_what, args, expected) => {
    for (const path of [stopped, killed]) {
      const { code, stdout, stderr } = await todo(...args, "--store", `sqlite:${path}`);
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
    const { code, stdout } = await todo("export", "--store", `sqlite:${copy}`);
    expect(code).toBe(0);
    expect(stdout.split("\n").slice(1, -1)).toEqual([
      '{"id":1,"title":"first","done":false}',
      '{"id":2,"title":"second","done":false}',
    ]);
  });
});
