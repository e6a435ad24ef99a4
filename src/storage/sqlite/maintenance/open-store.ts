import type { Database } from "bun:sqlite";
import { chmodSync, copyFileSync, existsSync, mkdtempSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { connectReadOnly, connectShared } from "../connection.ts";
import { whyNotWritable } from "../open-error.ts";

/** An open store. Disposing it closes it. */
export interface OpenStore extends Disposable {
  readonly database: Database;
}

/**
 * Opens a store that a server may be using. SQLite cannot open a store in a folder that it cannot write, so the store is
 * copied to a temporary folder then. SQLite's `immutable=1` would ignore the WAL and show an old state.
 * @param check throws if the store must not be used; nothing has been written to it then
 */
export function openShared(path: string, check: (database: Database) => void): OpenStore {
  const open = (file: string): OpenStore => {
    {
      using store = openReadOnly(file);
      check(store.database);
    }
    return openReadWrite(file);
  };
  try {
    return open(path);
  } catch (error) {
    if (whyNotWritable(path) === undefined) throw error;
    return openCopyOf(path, open);
  }
}

/** Opens a store for reading only. A server may be using the store. Throws if it is another program's database. */
export function openUnchanged(path: string): OpenStore {
  try {
    return openReadOnly(path);
  } catch (error) {
    if (whyNotWritable(path) === undefined) throw error;
    return openCopyOf(path, openReadOnly);
  }
}

function openReadOnly(path: string): OpenStore {
  const database = connectReadOnly(path);
  return { database, [Symbol.dispose]: () => database.close() };
}

function openReadWrite(path: string): OpenStore {
  const database = connectShared(path);
  return { database, [Symbol.dispose]: () => database.close() };
}

function openCopyOf(path: string, open: (copy: string) => OpenStore): OpenStore {
  const folder = mkdtempSync(join(tmpdir(), "todo-copy-"));
  const remove = () => rmSync(folder, { recursive: true });
  try {
    const copy = join(folder, "copy.db");
    copyFiles(path, copy);
    const opened = open(copy);
    const dispose = (): void => {
      opened[Symbol.dispose]();
      remove();
    };
    return { database: opened.database, [Symbol.dispose]: dispose };
  } catch (error) {
    remove();
    throw error;
  }
}

/** Copies a database with its latest writes. Throws if a server that this process cannot see changes them meanwhile. */
function copyFiles(path: string, copy: string): void {
  const suffixes = ["", "-wal", "-journal"].filter((suffix) => existsSync(path + suffix));
  const states = () => JSON.stringify(suffixes.map((suffix) => stateOf(path + suffix)));
  const before = states();
  for (const suffix of suffixes) {
    copyFileSync(path + suffix, copy + suffix);
    chmodSync(copy + suffix, 0o600);
  }
  if (states() !== before) throw new Error("it changed while it was copied: stop the server, or try again");
}

function stateOf(file: string): readonly unknown[] {
  const { ino, size, mtimeMs, ctimeMs } = statSync(file);
  return [ino, size, mtimeMs, ctimeMs];
}
