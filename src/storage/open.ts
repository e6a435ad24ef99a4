import type { TodoStore } from "../todo.ts";
import { openMemory } from "./memory.ts";

export interface StoreLimits {
  readonly maxTodos: number;
}

/** Opens the store that a URL names; throws an Error that says which there are. */
export function openStore(url: string, limits: StoreLimits): TodoStore {
  if (url === "memory:") return openMemory(limits);
  // No more of it, for it may hold a password.
  throw new Error(`there is no store of the kind "${url.split(":")[0]}:": use memory:`);
}
