import { expect } from "bun:test";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { run } from "./command.ts";

const probe = run(["sh", "-c", 'exec unshare --mount mount -t tmpfs tmpfs "$0"', tmpdir()]);

export const whyNoMount = (await probe.exited) === 0 ? undefined : `mount: ${probe.stderr().split("\n")[0]}`;

/** Mounts a file system in memory at a new folder, with options of tmpfs such as `size=4m`. */
export async function mountMemory(options: string) {
  const folder = await mkdtemp(join(tmpdir(), "todo-mounted-"));
  expect(await run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder]).exited).toBe(0);
  return {
    folder,
    [Symbol.asyncDispose]: async () => {
      await run(["umount", "-l", folder]).exited;
      await rm(folder, { recursive: true });
    },
  };
}
