import { expect, test } from "bun:test";
import { globSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { ended, runTodo } from "../../../test/command.ts";
import { mountMemory, whyNoMount } from "../../../test/mount.ts";
import { skipFor } from "../../../test/skip.ts";
import { exportOf } from "../../../test/store.ts";
import { temporaryFolder } from "../../../test/temporary.ts";
import { openSqlite } from "../../storage/sqlite/store.ts";

const folder = temporaryFolder();

const on = (path: string): readonly string[] => ["--store", `sqlite:${path}`];

const ran = (args: readonly string[]) => ended(runTodo(args));

const exported = async (path: string): Promise<string> => (await ran(["export", ...on(path)])).stdout;

test.skipIf(skipFor(whyNoMount))("a transfer that fails on a full disk leaves no files", async () => {
  await using disk = await mountMemory("size=4m");
  const [large, small, path] = [join(folder, "large"), join(folder, "small"), join(folder, "todos.db")];
  writeFileSync(large, exportOf(300_000));
  writeFileSync(small, exportOf(10));
  await ran(["import", large, ...on(path)]);
  const on4MiB = join(disk.folder, "it");
  const failed = { code: 1, stdout: "", stderr: expect.stringMatching(/^todo: .*\n$/) };
  for (const [args, reason] of [
    [["import", large, ...on(on4MiB)], "database or disk is full"],
    [["export", on4MiB, ...on(path)], "no space left on device"],
    [["backup", on4MiB, ...on(path)], "database or disk is full"],
    [["restore", path, ...on(on4MiB)], "no space left on device"],
  ] as const) {
    const said = await ran(args);
    expect(said).toEqual(failed);
    expect(said.stderr).toContain(reason);
    expect(globSync(`${on4MiB}*`)).toEqual([]);
  }
  // A failed import leaves an existing store unchanged. Both commands succeed when there is room.
  await ran(["import", small, ...on(on4MiB)]);
  await (await openSqlite(`${on4MiB}2`)).close();
  expect(await ran(["import", large, ...on(`${on4MiB}2`)])).toEqual(failed);
  expect(await exported(`${on4MiB}2`)).toBe(exportOf(0));
  expect(await exported(on4MiB)).toBe(exportOf(10));
  writeFileSync(join(disk.folder, "filler"), new Uint8Array(3 * 1024 * 1024));
  // An export needs no room.
  expect((await ran(["export", ...on(on4MiB)])).stderr).toBe("exported 10 to-dos, the last id is 30\n");
});
