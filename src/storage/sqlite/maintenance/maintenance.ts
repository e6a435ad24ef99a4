import type { Maintenance } from "../../maintenance.ts";
import { backup, restore } from "./backup.ts";
import { exportTodos, importTodos } from "./transfer.ts";

/** Returns the maintenance operations of a SQLite file. */
export const createSqliteMaintenance = (path: string): Maintenance => ({
  backup: (file, signal) => backup(path, file, signal),
  restore: (file, signal) => restore(path, file, signal),
  export: (write, work) => exportTodos(path, write, work),
  import: (source, maxTodos, work) => importTodos(path, source, maxTodos, work),
});
