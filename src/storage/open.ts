import { PreconditionError, type StoreAdmin } from "./maintenance.ts";
import { openMemory } from "./memory/store.ts";
import { openPostgresKeys } from "./postgres/keys.ts";
import { probePostgres } from "./postgres/probe.ts";
import { openPostgres, type PostgresOptions } from "./postgres/store.ts";
import {
  exportTodos as exportFromPostgres,
  importTodos as importIntoPostgres,
  migrateDatabase,
} from "./postgres/transfer.ts";
import { openSqliteKeys } from "./sqlite/keys.ts";
import { acceptLoss } from "./sqlite/maintenance/accept-loss.ts";
import { backup, restore } from "./sqlite/maintenance/backup.ts";
import { check } from "./sqlite/maintenance/check.ts";
import { migrateFile } from "./sqlite/maintenance/migrate.ts";
import { exportSkippingDamaged } from "./sqlite/maintenance/skip-damaged.ts";
import { exportTodos, importTodos } from "./sqlite/maintenance/transfer.ts";
import { canonicalPath } from "./sqlite/path.ts";
import { probeSqlite, type SqliteProbe } from "./sqlite/probe.ts";
import { openSqlite } from "./sqlite/store.ts";
import type { KeyStoreHandle, OpenKeysOptions, Store } from "./store.ts";

const POSTGRES = /^postgres(?:ql)?:\/\//;

export type StoreKind = "memory" | "sqlite" | "postgres";

/** Returns the kind of the store at a URL; `undefined` if the URL names none. */
export function parseKind(url: string): StoreKind | undefined {
  if (url === "memory:") return "memory";
  if (url.startsWith("sqlite:")) return "sqlite";
  return POSTGRES.test(url) ? "postgres" : undefined;
}

/** Opens the store at a URL: `memory:`, `sqlite:PATH` or `postgres://…`. Throws an Error with the reason if it cannot. */
export async function openStore(url: string, options: PostgresOptions): Promise<Store> {
  if (url === "memory:") return openMemory(options);
  const path = parseFilePath(url);
  if (path !== undefined) return openSqlite(path, options);
  if (POSTGRES.test(url)) return openPostgres(url, options);
  throw unknownKind(url);
}

/**
 * Opens the API keys of the store at a URL. A server may be using the store. Returns `undefined` for `memory:`, whose
 * keys only its server can access. Throws an Error with the reason if it cannot open them.
 */
export async function openKeys(url: string, options: OpenKeysOptions): Promise<KeyStoreHandle | undefined> {
  if (url === "memory:") return undefined;
  const path = parseFilePath(url);
  if (path !== undefined) return openSqliteKeys(path, options);
  if (POSTGRES.test(url)) return openPostgresKeys(url);
  throw unknownKind(url);
}

/** Returns the maintenance operations of the store at a URL. Throws a PreconditionError if it has none. */
export function openStoreAdmin(url: string): StoreAdmin {
  if (url === "memory:")
    throw new PreconditionError("memory: keeps nothing: name a file, such as sqlite:PATH");
  const path = parseFilePath(url);
  if (path !== undefined) {
    return {
      backup: (file, signal) => backup(path, file, signal),
      restore: (file, signal) => restore(path, file, signal),
      acceptLoss: () => acceptLoss(path),
      export: (write, options) => exportTodos(path, write, options),
      exportSkippingDamaged: (write, options) => exportSkippingDamaged(path, write, options),
      check: () => check(path),
      import: (source, maxTodos, options) => importTodos(path, source, maxTodos, options),
      migrate: () => migrateFile(path),
    };
  }
  if (POSTGRES.test(url)) {
    return {
      backup: rejectOnPostgres,
      restore: rejectOnPostgres,
      acceptLoss: rejectOnPostgres,
      export: (write, options) => exportFromPostgres(url, write, options),
      exportSkippingDamaged: rejectOnPostgres,
      check: rejectOnPostgres,
      import: (source, maxTodos, options) => importIntoPostgres(url, source, maxTodos, options),
      migrate: () => migrateDatabase(url),
    };
  }
  throw unknownKind(url);
}

const rejectOnPostgres = async (): Promise<never> => {
  throw new PreconditionError("PostgreSQL has its own tools: use pg_dump and pg_restore");
};

/** What `probeStore` found: the kind of the store, and times in milliseconds since 1970 to check the clock with. */
export type StoreProbe =
  | { readonly kind: "memory" }
  | ({ readonly kind: "sqlite"; readonly path: string } & SqliteProbe)
  | { readonly kind: "postgres"; readonly now: number };

/** Checks that the store at a URL can be reached and written, and changes nothing. Throws an Error with the reason. */
export async function probeStore(url: string): Promise<StoreProbe> {
  if (url === "memory:") return { kind: "memory" };
  const path = parseFilePath(url);
  if (path !== undefined) return { kind: "sqlite", path, ...(await probeSqlite(path)) };
  if (POSTGRES.test(url)) return { kind: "postgres", now: await probePostgres(url) };
  throw unknownKind(url);
}

/** Returns the path of a `sqlite:` URL; `undefined` for other URLs. */
export function parseFilePath(url: string): string | undefined {
  const path = /^sqlite:(.*)$/s.exec(url)?.[1];
  if (path === "") throw new PreconditionError("sqlite: names no file: use sqlite:PATH");
  return path === undefined ? undefined : canonicalPath(path);
}

/**
 * Returns an error that repeats only the scheme, because the URL may contain a password.
 * @param choices the URLs that are possible
 */
export function unknownKind(url: string, choices = "memory:, sqlite:PATH or postgres://…"): Error {
  const [scheme, ...rest] = url.split(":");
  if (rest.length === 0) return new Error(`"${url}" names no kind of store: did you mean sqlite:${url}?`);
  return new Error(`there is no store of the kind "${scheme}:": use ${choices}`);
}
