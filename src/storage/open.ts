import { type Archive, Refusal } from "./archive.ts";
import { openMemory } from "./memory.ts";
import { openPostgres, type PostgresOptions } from "./postgres/engine.ts";
import { openPostgresKeys } from "./postgres/keys.ts";
import { sqliteArchive } from "./sqlite/archive.ts";
import { openSqlite } from "./sqlite/engine.ts";
import { openSqliteKeys } from "./sqlite/keys.ts";
import { realFile } from "./sqlite/path.ts";
import type { OpenKeys, Store } from "./store.ts";

const POSTGRES = /^postgres(?:ql)?:\/\//;

/** Opens the store that a URL names, `memory:`, `sqlite:PATH` or `postgres://…`; throws an Error that says why it cannot. */
export async function openStore(url: string, options: PostgresOptions): Promise<Store> {
  if (url === "memory:") return openMemory(options);
  const path = fileOf(url);
  if (path !== undefined) return openSqlite(path, options);
  if (POSTGRES.test(url)) return openPostgres(url, options);
  throw unknownKind(url);
}

/**
 * Opens the keys of the store that a URL names, beside a server that may be using it; `undefined` when its server
 * alone can reach them. Throws an Error that says why it cannot.
 * @param make whether a store that is not there is made
 */
export async function openKeys(url: string, make: boolean): Promise<OpenKeys | undefined> {
  if (url === "memory:") return undefined;
  const path = fileOf(url);
  if (path !== undefined) return openSqliteKeys(path, make);
  if (POSTGRES.test(url)) return openPostgresKeys(url);
  throw unknownKind(url);
}

/** What can be done to the whole store that a URL names; throws a Refusal or an Error that says why nothing can. */
export function openArchive(url: string): Archive {
  if (url === "memory:")
    throw new Refusal("memory: keeps nothing: name a file, as in TODO_STORE=sqlite:PATH");
  const path = fileOf(url);
  if (path !== undefined) return sqliteArchive(path);
  if (POSTGRES.test(url)) throw new Refusal("PostgreSQL has its own: use pg_dump and pg_restore");
  throw unknownKind(url);
}

/** The file that a URL names. */
function fileOf(url: string): string | undefined {
  const path = /^sqlite:(.*)$/s.exec(url)?.[1];
  if (path === "") throw new Refusal("sqlite: names no file: use sqlite:PATH");
  return path === undefined ? undefined : realFile(path);
}

/** Says no more of a URL than its scheme, for it may hold a password. */
function unknownKind(url: string): Error {
  const [scheme, ...rest] = url.split(":");
  if (rest.length === 0) return new Error(`"${url}" names no kind of store: did you mean sqlite:${url}?`);
  return new Error(`there is no store of the kind "${scheme}:": use memory:, sqlite:PATH or postgres://…`);
}
