import type { TodoStore } from "../todo.ts";
import { openMemory } from "./memory.ts";
import { openSqlite } from "./sqlite.ts";

export interface StoreLimits {
  readonly maxTodos: number;
}

/** Opens the store that a URL names, `memory:` or `sqlite:PATH`; throws an Error that says why it cannot. */
export async function openStore(url: string, limits: StoreLimits): Promise<TodoStore> {
  if (url === "memory:") return openMemory(limits);
  const path = /^sqlite:(.+)$/.exec(url)?.[1];
  if (path !== undefined) return openSqlite(path, limits);
  // No more of it, for it may hold a password.
  throw new Error(`there is no store of the kind "${url.split(":")[0]}:": use memory: or sqlite:PATH`);
}
