import { afterAll } from "bun:test";
import { copyFileSync, globSync, mkdtempSync, rmSync } from "node:fs";
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
