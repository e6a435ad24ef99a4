import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { chmod, cp, mkdir, mkdtemp, readdir, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { openSqlite } from "../src/storage/sqlite/store.ts";
import { run, runTodo } from "./command.ts";
import { skipFor } from "./skip.ts";

const folder = await mkdtemp(join(tmpdir(), "todo-read-only-"));
const media = join(folder, "media");
const temporary = join(folder, "temporary");
await mkdir(media);
await mkdir(temporary);
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
  await store.keys.insert({
    id: "k",
    name: "alice",
    tokenHash: new Uint8Array(32),
    scope: "write",
    createdAt: 1,
  });
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

async function todo(...args: string[]) {
  await using command = runTodo(args, { TMPDIR: temporary });
  return { code: await command.exited, stdout: command.stdout(), stderr: command.stderr() };
}

describe.skipIf(skipFor(whyWritable))("a store on read-only media", () => {
  test.each([
    ["stopped", stopped],
    ["killed", killed],
  ])("is exported with the latest writes of its %s server", async (_what, path) => {
    const { code, stdout, stderr } = await todo("export", "--store", `sqlite:${path}`);
    expect({ code, stderr }).toEqual({ code: 0, stderr: "exported 2 to-dos, the last id is 2\n" });
    expect(stdout.split("\n").slice(1, -1)).toEqual([
      '{"id":1,"title":"first","done":false}',
      '{"id":2,"title":"second","done":false}',
    ]);
    expect(await readdir(temporary)).toEqual([]);
  });

  test.each([
    ["stopped", stopped],
    ["killed", killed],
  ])("is backed up with the latest writes of its %s server", async (what, path) => {
    const file = join(folder, `${what}-backup.db`);
    const { code, stdout } = await todo("backup", file, "--store", `sqlite:${path}`);
    expect({ code, stdout }).toEqual({ code: 0, stdout: expect.stringMatching(/^backed up 2 to-dos/) });
    const store = await openSqlite(file);
    expect([store.count, await store.keys.list()]).toEqual([
      2,
      [{ id: "k", name: "alice", scope: "write", createdAt: 1 }],
    ]);
    await store.close();
    expect(await readdir(temporary)).toEqual([]);
  });

  test.each([
    ["stopped", stopped],
    ["killed", killed],
  ])("is checked, with the latest writes of its %s server", async (_what, path) => {
    const { code, stdout, stderr } = await todo("check", path);
    expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
    expect(stdout).toStartWith("structure: ok\ncontents: ok\nmark: ");
    expect(await readdir(temporary)).toEqual([]);
  });

  test.each([
    ["serve", ["serve", "--port", "0"], 1],
    ["keys create", ["keys", "create", "bob"], 1],
    ["import", ["import", "/dev/null"], 2],
  ])("is refused by todo %s with the reason", async (_what, args, expected) => {
    for (const path of [stopped, join(media, "new.db")]) {
      const { code, stdout, stderr } = await todo(...args, "--store", `sqlite:${path}`);
      expect({ code, stdout }).toEqual({ code: expected, stdout: "" });
      expect(stderr).toStartWith("todo: ");
      expect(stderr).toContain(reason);
    }
  });
});
