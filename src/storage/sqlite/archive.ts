import type { Archive } from "../archive.ts";
import { backup, restore } from "./backup.ts";
import { exportTodos, importTodos } from "./transfer.ts";

/** The archive of a file. */
export const sqliteArchive = (path: string): Archive => ({
  backup: (file, signal) => backup(path, file, signal),
  restore: (file, signal) => restore(path, file, signal),
  export: (write, work) => exportTodos(path, write, work),
  import: (source, maxTodos, work) => importTodos(path, source, maxTodos, work),
});
