import { afterAll } from "bun:test";
import { copyFileSync, existsSync, globSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

/** Creates a folder that is removed after the tests of the file or the suite. */
export function temporaryFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), "todo-test-"));
  // `force` ignores files that a closing store removes at the same time.
  afterAll(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

/** Returns a function that returns the path of another SQLite file each time. */
export function storePathsIn(folder = temporaryFolder()): () => string {
  let files = 0;
  return () => join(folder, `${++files}.db`);
}

/** Returns a function that returns the path of another file each time. Writes it, for its owner only, if it is given a text. */
export function filesIn(folder = temporaryFolder()): (text?: string | Uint8Array) => string {
  let files = 0;
  return (text) => {
    const path = join(folder, `file-${++files}`);
    if (text !== undefined) writeFileSync(path, text, { mode: 0o600 });
    return path;
  };
}

/** Returns the suffixes of all files whose path starts with this one, except the lock and the high-water mark of a store. */
export const filesAt = (path: string): string[] =>
  globSync(`${path}*`).flatMap((found) =>
    existsSync(path) && [`${path}-lock`, `${path}-mark`].includes(found) ? [] : [found.slice(path.length)],
  );

/** Returns a function that returns the path of another copy of a closed store each time. The store is built once, because each write waits for the disk. */
export function copiesOf(
  newPath: () => string,
  build: (path: string) => Promise<void>,
): () => Promise<string> {
  let built: Promise<string> | undefined;
  return async () => {
    built ??= (async (path) => {
      await build(path);
      return path;
    })(newPath());
    const [original, copy] = [await built, newPath()];
    for (const file of globSync(`${original}*`))
      if (!file.endsWith("-lock")) copyFileSync(file, file.replace(original, copy));
    return copy;
  };
}
