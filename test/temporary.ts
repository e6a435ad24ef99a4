import { afterAll } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

/** Creates a folder that is removed after the tests of the file or the suite. */
export function temporaryFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), "todo-test-"));
  afterAll(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

/** Returns a function that returns the path of another SQLite file each time. */
export function storePathsIn(folder = temporaryFolder()): () => string {
  let files = 0;
  return () => join(folder, `${++files}.db`);
}
