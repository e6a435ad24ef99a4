import { cp, symlink } from "node:fs/promises";
import { join } from "node:path";
import { ROOT, run, succeed } from "./command.ts";

/** Copies the tracked files only, because other tests may create and remove files at the same time. */
export async function copyRepository(folder: string): Promise<void> {
  const files = "git ls-files -z | xargs -0 ls -d 2>/dev/null";
  await succeed(run(["sh", "-c", `${files} | tar -cf - -T - | tar -xf - -C "$0"`, folder]));
  await symlink(join(ROOT, "node_modules"), join(folder, "node_modules"));
}

/** Copies the program to a folder and changes one of its files. Returns the main module. */
export async function copyProgram(
  folder: string,
  file: string,
  changes: readonly (readonly [from: string, to: string])[],
): Promise<string> {
  for (const name of ["src", "web/built", "package.json", "openapi.json"])
    await cp(join(ROOT, name), join(folder, name), { recursive: true });
  await symlink(join(ROOT, "node_modules"), join(folder, "node_modules"));
  let source = await Bun.file(join(folder, file)).text();
  for (const [from, to] of changes) {
    if (source.split(from).length !== 2) throw new Error(`${file} must contain this text once: ${from}`);
    source = source.replace(from, to);
  }
  await Bun.write(join(folder, file), source);
  return join(folder, "src/cli/main.ts");
}

/** Copies the program with commits that do not wait for the disk. Returns the main module. */
export const copyWithoutFsync = (folder: string): Promise<string> =>
  copyProgram(folder, "src/storage/sqlite/database.ts", [["synchronous = FULL", "synchronous = NORMAL"]]);

/** Copies the program with password hashes of the lowest cost, for tests that make many of them. Returns the main module. */
export const copyWithCheapHashes = (folder: string): Promise<string> =>
  copyProgram(folder, "src/credential/password.ts", [["BCRYPT_COST = 12", "BCRYPT_COST = 4"]]);
