import { openMemory } from "./memory.ts";
import { openSqlite } from "./sqlite/engine.ts";
import type { Store, StoreOptions } from "./store.ts";

/** Opens the store that a URL names, `memory:` or `sqlite:PATH`; throws an Error that says why it cannot. */
export async function openStore(url: string, options: StoreOptions): Promise<Store> {
  if (url === "memory:") return openMemory(options);
  const path = /^sqlite:(.+)$/.exec(url)?.[1];
  if (path !== undefined) return openSqlite(path, options);
  // No more of it, for it may hold a password.
  throw new Error(`there is no store of the kind "${url.split(":")[0]}:": use memory: or sqlite:PATH`);
}
