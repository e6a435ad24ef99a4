import { cp, symlink } from "node:fs/promises";
import { join } from "node:path";
import { ROOT } from "./command.ts";

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
