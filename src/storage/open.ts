import { PreconditionError, type StoreAdmin } from "./maintenance.ts";
import { openMemory } from "./memory/store.ts";
import type { PostgresOptions } from "./postgres/store.ts";
import { canonicalPath } from "./sqlite/files.ts";
import type { probeSqlite } from "./sqlite/maintenance.ts";
import type { KeyStoreHandle, OpenKeysOptions, Store } from "./store.ts";

const SQLITE = "sqlite:";
const POSTGRES = /^postgres(?:ql)?:\/\//;

/** What to do with each kind of store. Loads the engine only there, because a command would start 30 ms later with both. */
interface Kinds<T> {
  readonly memory: () => T;
  /** @param name the path as the URL has it, which may lead through symbolic links */
  readonly sqlite: (path: string, name: string) => T;
  readonly postgres: () => T;
}

function byKind<T>(url: string, kinds: Kinds<T>): T {
  if (url === "memory:") return kinds.memory();
  const path = parseFilePath(url);
  if (path !== undefined) return kinds.sqlite(path, url.slice(SQLITE.length));
  if (POSTGRES.test(url)) return kinds.postgres();
  throw unknownKind(url);
}

/** Opens the store at a URL: `memory:`, `sqlite:PATH` or `postgres://…`. Throws an Error with the reason if it cannot. */
export async function openStore(url: string, options: PostgresOptions): Promise<Store> {
  return byKind<Store | Promise<Store>>(url, {
    memory: () => openMemory(options),
    sqlite: async (_path, name) => (await import("./sqlite/store.ts")).openSqlite(name, options),
    postgres: async () => (await import("./postgres/store.ts")).openPostgres(url, options),
  });
}

/**
 * Opens the API keys of the store at a URL. A server may be using the store. Returns `undefined` for `memory:`, whose
 * keys only its server can access. Throws an Error with the reason if it cannot open them.
 */
export async function openKeys(url: string, options: OpenKeysOptions): Promise<KeyStoreHandle | undefined> {
  return byKind<Promise<KeyStoreHandle> | undefined>(url, {
    memory: () => undefined,
    sqlite: async (path) => (await import("./sqlite/keys.ts")).openSqliteKeys(path, options),
    postgres: async () => (await import("./postgres/keys.ts")).openPostgresKeys(url),
  });
}

/** Returns the maintenance operations of the store at a URL. Throws a PreconditionError if it has none. */
export const openStoreAdmin = (url: string): StoreAdmin =>
  byKind<StoreAdmin>(url, {
    memory: () => {
      throw new PreconditionError(
        "the memory store keeps nothing: name another store, such as sqlite:todos.db",
      );
    },
    sqlite: (path) => {
      const load = () => import("./sqlite/maintenance.ts");
      return {
        backup: async (...given) => (await load()).backup(path, ...given),
        restore: async (...given) => (await load()).restore(path, ...given),
        export: async (...given) => (await load()).exportTodos(path, ...given),
        check: async () => (await load()).check(path),
        import: async (...given) => (await load()).importTodos(path, ...given),
        migrate: async () => (await load()).migrate(path),
      };
    },
    postgres: () => ({
      backup: rejectPostgres("to back up PostgreSQL, run pg_dump"),
      restore: rejectPostgres("to restore PostgreSQL, run pg_restore"),
      export: async (...given) => (await import("./postgres/transfer.ts")).exportTodos(url, ...given),
      check: rejectPostgres("to check PostgreSQL, run pg_amcheck"),
      import: async (...given) => (await import("./postgres/transfer.ts")).importTodos(url, ...given),
      migrate: async () => (await import("./postgres/transfer.ts")).migrateDatabase(url),
    }),
  });

const rejectPostgres = (advice: string) => async (): Promise<never> => {
  throw new PreconditionError(advice);
};

/** What `probeStore` found. */
export type StoreProbe =
  | { readonly kind: "memory" }
  | ({ readonly kind: "sqlite"; readonly path: string } & Awaited<ReturnType<typeof probeSqlite>>)
  | { readonly kind: "postgres"; readonly now: number };

/** Checks that the store at a URL can be reached and written, and changes nothing. Throws an Error with the reason. */
export async function probeStore(url: string): Promise<StoreProbe> {
  return byKind<StoreProbe | Promise<StoreProbe>>(url, {
    memory: () => ({ kind: "memory" }),
    sqlite: async (path) => {
      const { probeSqlite: probe } = await import("./sqlite/maintenance.ts");
      return { kind: "sqlite", path, ...(await probe(path)) };
    },
    postgres: async () => {
      const { probePostgres } = await import("./postgres/schema.ts");
      return { kind: "postgres", now: await probePostgres(url) };
    },
  });
}

/** Returns the path of a `sqlite:` URL; `undefined` for other URLs. */
export function parseFilePath(url: string): string | undefined {
  if (!url.startsWith(SQLITE)) return undefined;
  const path = url.slice(SQLITE.length);
  if (path === "") throw new PreconditionError("sqlite: names no file: use sqlite:PATH");
  const [, name] = /^\/\/([^/].*)/s.exec(path) ?? [];
  if (name !== undefined)
    throw new PreconditionError(`${url}: write sqlite:${name}, or sqlite:/${name} for an absolute path`);
  return canonicalPath(path);
}

/** The right form of a store by the words that people write for it. */
const KINDS = {
  "memory:": /^memory\b/i,
  "sqlite:PATH": /^sqlite3?\b/i,
  "postgres://…": /^(?:postgres|postgresql|pg)\b/i,
};

/** Returns an error that repeats at most the scheme, because a URL or a connection string may contain a password. */
function unknownKind(url: string): Error {
  const [meant] = Object.entries(KINDS).find(([, words]) => words.test(url)) ?? [];
  if (meant !== undefined) return new Error(`the store has a wrong form: did you mean ${meant}?`);
  const scheme = /^[a-z][a-z\d+.-]*:/i.exec(url)?.[0];
  const what = scheme === undefined ? "the store has no kind" : `there is no store of the kind "${scheme}"`;
  return new Error(`${what}: use memory:, sqlite:PATH or postgres://…`);
}
