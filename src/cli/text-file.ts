import { readFileSync, statSync } from "node:fs";
import { isAbsolute, resolve } from "node:path";

const LOOK_INTERVAL_MS = 1000;

/** Reads a text file; the Error says in plain words why it cannot be read. */
export function readText(path: string): string {
  try {
    return readFileSync(path, "utf8");
  } catch (error) {
    const code = error instanceof Error && "code" in error ? error.code : undefined;
    if (code === "ENOENT")
      throw new Error(`there is no such file${isAbsolute(path) ? "" : ` (${resolve(path)})`}`, {
        cause: error,
      });
    if (code === "EACCES") throw new Error("the file may not be read by this user", { cause: error });
    if (code === "EISDIR") throw new Error("that is a folder, not a file", { cause: error });
    throw new Error(`the file cannot be read (${code})`, { cause: error });
  }
}

/** Calls back each second for as long as the process runs, unless one of the files is a pipe: read again, it would never end. */
export function lookAgain(paths: readonly string[], look: () => void): void {
  // Read and not watched: a watch may begin after a change, and compares times that need not differ.
  if (paths.every((path) => statSync(path).isFile())) setInterval(look, LOOK_INTERVAL_MS).unref();
}
