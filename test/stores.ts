import { afterAll, beforeAll } from "bun:test";
import { openMemory } from "../src/storage/memory/store.ts";
import { openSqlite } from "../src/storage/sqlite/store.ts";
import type { Store, StoreOptions } from "../src/storage/store.ts";
import { type Databases, openDatabases, whyNoDatabase } from "./postgres.ts";
import { emptyStores } from "./postgres-store.ts";
import { skipFor } from "./skip.ts";
import { storePathsIn } from "./temporary.ts";

export type OpenStore = (options?: StoreOptions) => Promise<Store>;

/**
 * Returns functions that each open an empty store: in memory, in a SQLite file, and on PostgreSQL if that is installed. Call it
 * once per test file, because it registers hooks that start PostgreSQL and remove the files.
 */
export function storesOfEachKind(): [kind: string, openStore: OpenStore][] {
  const newPath = storePathsIn();
  const stores: [kind: string, openStore: OpenStore][] = [
    ["memory", async (options) => openMemory(options)],
    ["sqlite", (options) => openSqlite(newPath(), options)],
  ];
  if (skipFor(whyNoDatabase)) return stores;
  let databases: Databases;
  beforeAll(async () => {
    databases = await openDatabases();
  });
  afterAll(() => databases[Symbol.asyncDispose]());
  stores.push(["postgres", emptyStores(() => databases)]);
  return stores;
}
