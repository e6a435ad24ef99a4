import { afterAll, beforeAll, expect } from "bun:test";
import { SQL } from "bun";
import { openMemory } from "../src/storage/memory/store.ts";
import { openPostgres, type PostgresOptions } from "../src/storage/postgres/store.ts";
import { openSqlite } from "../src/storage/sqlite/store.ts";
import type { Store, StoreOptions } from "../src/storage/store.ts";
import { type Postgres, startPostgres, whyNoDatabase } from "./postgres.ts";
import { errorOf } from "./rejection.ts";
import { skipFor } from "./skip.ts";
import { storePathsIn } from "./temporary.ts";

const EMPTY = `
  DELETE FROM todo_service.todos; DELETE FROM todo_service.events; DELETE FROM todo_service.idempotency_records;
  DELETE FROM todo_service.keys; UPDATE todo_service.store SET last_id = 0, sequence = 0, epoch = todo_service.random_epoch(), todos = 0, idempotency_records = 0`;

/** On a busy machine, PostgreSQL may need longer than the defaults allow. */
export const PATIENT: PostgresOptions = { queryTimeoutMs: 60_000 };

/** Starts a server for the tests of a file. By default, it loses data in a crash, because it does not sync. */
export function usePostgres(settings: Parameters<typeof startPostgres>[0] = { fsync: "off" }) {
  let server: Postgres;
  beforeAll(async () => {
    server = await startPostgres(settings);
  });
  afterAll(() => server?.[Symbol.asyncDispose]());
  return {
    get port() {
      return server.port;
    },
    newDatabase: (options?: string) => server.newDatabase(options),
    query: <Row>(text: string) => server.query<Row>(text),
    start: () => server.start(),
    stop: (how: Parameters<Postgres["stop"]>[0]) => server.stop(how),
    copyData: () => server.copyData(),
  };
}

/** Returns a function that opens empty stores. It reuses databases of closed stores, because emptying one is faster than creating one. */
export function emptyStores(
  databases: Pick<Postgres, "newDatabase">,
): (options?: PostgresOptions) => Promise<Store> {
  const free: string[] = [];
  return async (options) => {
    const used = free.pop();
    if (used !== undefined) await executeSql(used, EMPTY);
    const url = used ?? (await databases.newDatabase());
    const store = await openPostgres(url, { ...PATIENT, ...options });
    const close = store.close.bind(store);
    store.close = async () => {
      await close();
      free.push(url);
    };
    return store;
  };
}

export async function reasonOf(url: string | URL): Promise<string> {
  const error = await errorOf(openPostgres(String(url)));
  const [, secret = ""] = /:[^:]*?([^:/%#]+)@/.exec(String(url)) ?? [];
  expect(Bun.inspect(error)).not.toContain(secret);
  expect(error.message).not.toContain("\n");
  return error.message;
}

export async function executeSql(url: string, text: string): Promise<void> {
  const sql = new SQL(url, { max: 1 });
  await sql.unsafe(text).simple();
  await sql.close();
}

export const ageIdempotencyKeys = (url: string, hours: number): Promise<void> =>
  executeSql(
    url,
    `UPDATE todo_service.idempotency_records SET created_at = created_at - ${hours * 3_600_000}`,
  );

export type OpenStore = (options?: StoreOptions) => Promise<Store>;

/** With PostgreSQL only if it is installed. Call it once per test file, because it registers hooks. */
export function storesOfEachKind(): [kind: string, openStore: OpenStore][] {
  const newPath = storePathsIn();
  const stores: [kind: string, openStore: OpenStore][] = [
    ["memory", async (options) => openMemory(options)],
    ["sqlite", (options) => openSqlite(newPath(), options)],
  ];
  if (skipFor(whyNoDatabase)) return stores;
  stores.push(["postgres", emptyStores(usePostgres())]);
  return stores;
}
