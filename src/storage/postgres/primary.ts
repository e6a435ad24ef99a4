import { SQL } from "bun";
import { ServiceError } from "../../error.ts";
import { errorMessage } from "../../error-message.ts";
import { failureOf, isTemporary, TimeoutError, withTimeout } from "../failure.ts";
import { PRIMARY_DEFAULTS, type PrimaryOptions, StoreUnavailableError, storeUnavailable } from "../store.ts";

const CHANNEL = "todo_service";

/** A parameter of a query. */
export type Value = string | number | bigint | boolean | Uint8Array | null;

/** Work with the pool. Long work calls `progress` to extend its timeout. */
export type Work<T> = (sql: SQL, progress: () => void) => Promise<T>;

/**
 * Calls `open` with a connection pool, which stays open if `open` succeeds. Throws an Error with the reason if it cannot, and
 * a StoreUnavailableError if the same call may succeed later.
 */
export async function openPrimary<Opened>(
  url: string,
  options: PrimaryOptions,
  open: (primary: Primary) => Promise<Opened>,
): Promise<Opened> {
  const primary = new Primary(url, options);
  try {
    return await open(primary);
  } catch (error) {
    await primary.close();
    const cause = error instanceof ServiceError ? error.cause : error;
    throw isTemporary(cause) ? new StoreUnavailableError(errorMessage(cause), { cause }) : cause;
  }
}

/** Calls `use` with a connection pool, and then closes it. Throws what `openPrimary` throws. */
export function withPrimary<T>(url: string, use: (primary: Primary) => Promise<T>): Promise<T> {
  return openPrimary(url, PRIMARY_DEFAULTS, async (primary) => {
    const result = await use(primary);
    await primary.close();
    return result;
  });
}

/** A connection pool to the first host that accepts writes. Reconnects to any of the hosts after a failure. */
export class Primary {
  readonly #urls: readonly string[];
  readonly #options: PrimaryOptions;
  #onNotify: ((sequence?: number) => void) | undefined;
  #listening: { readonly sql: SQL; readonly subscription: Promise<SQL.ListenSubscription> } | undefined;
  #pool: Promise<SQL> | undefined;
  #closed = false;
  /** The size of the pool, and the queries that run or wait for a connection. */
  readonly pool: { readonly connections: number; queries: number };

  /** @param url in libpq's format: `postgres://user:password@host1:5432,host2:5432/database?sslmode=…` */
  constructor(url: string, options: PrimaryOptions) {
    this.#urls = splitUrls(url);
    for (const each of this.#urls) rejectSessionParameters(each);
    this.#options = options;
    this.pool = { connections: options.connections, queries: 0 };
  }

  /** Runs a query. Throws `store_unavailable`; the query may then still have taken effect. */
  query<Row>(text: string, values: readonly Value[] = []): Promise<readonly Row[]> {
    return this.run((sql) => sql.unsafe<Row[]>(text, [...values]));
  }

  /** Runs work with the pool. Throws `store_unavailable`, as `query` does. */
  async run<T>(work: Work<T>): Promise<T> {
    const pool = this.#connected();
    let sql: SQL | undefined;
    let isOver = false;
    this.pool.queries++;
    try {
      return await answeredIn(this.#options.queryTimeoutMs, async (progress) => {
        const connected = await pool;
        // The caller has already received an error.
        if (isOver) throw new Error("the connection was made after the timeout");
        sql = connected;
        return work(sql, progress);
      });
    } catch (cause) {
      isOver = true;
      if (sql !== undefined && failureOf(cause) === "connection") this.#discard(pool);
      throw storeUnavailable(cause);
    } finally {
      this.pool.queries--;
    }
  }

  /** Runs work that may wait for a file or a pipe, and therefore has no timeout. The database limits each query. */
  async runUnlimited<T>(work: (sql: SQL) => Promise<T>): Promise<T> {
    return work(await this.#connected());
  }

  /**
   * Listens for writes of other replicas, unless it already does. Calls the function with their latest sequence number,
   * or without one if a notification may have been missed.
   */
  listen(onNotify: (sequence?: number) => void): void {
    if (this.#onNotify !== undefined) return;
    this.#onNotify = onNotify;
    this.#pool?.then((sql) => this.#listenOn(sql), ignore);
  }

  /** Stops listening, which reduces the load on the database. */
  unlisten(): void {
    this.#onNotify = undefined;
    this.#listening?.subscription.then((subscription) => subscription.unlisten()).catch(ignore);
    this.#listening = undefined;
  }

  async close(): Promise<void> {
    this.#closed = true;
    const pool = this.#pool;
    this.#pool = undefined;
    if (pool !== undefined) await close(pool, 0);
  }

  #connected(): Promise<SQL> {
    if (this.#pool === undefined) {
      const pool = this.#connect();
      pool.catch(() => this.#discard(pool));
      this.#pool = pool;
    }
    return this.#pool;
  }

  /** Makes the next query reconnect. Pending queries of the old pool may still complete. */
  #discard(pool: Promise<SQL>): void {
    if (this.#pool !== pool) return;
    this.#pool = undefined;
    close(pool, this.#options.queryTimeoutMs);
  }

  async #connect(): Promise<SQL> {
    const reasons: string[] = [];
    let mayRecover = false;
    for (const url of this.#urls) {
      if (this.#closed) throw new Error("the store is closed");
      const sql = this.#open(url);
      try {
        if (!(await this.#isStandby(sql))) {
          this.#listenOn(sql);
          return sql;
        }
        reasons.push(`${getHost(url)}: the server is a read-only standby`);
        mayRecover = true;
      } catch (error) {
        reasons.push(`${getHost(url)}: ${errorMessage(error)}`);
        mayRecover ||= isTemporary(error);
      }
      await sql.close({ timeout: 0 });
    }
    const remedy = reasons.some((reason) => reason.includes(": Failed to connect")) ? UNREACHABLE : "";
    const reason = reasons.join("; ") + remedy;
    throw mayRecover ? new StoreUnavailableError(reason) : new Error(reason);
  }

  /** Returns whether a host is a standby. Rejects if a connection pooler drops the session parameters. */
  async #isStandby(sql: SQL): Promise<boolean> {
    const [row] = await answeredIn<readonly { standby: boolean; direct: string | null }[]>(
      this.#options.queryTimeoutMs,
      () => sql.unsafe(HOST_STATE).simple(),
    ).catch((error) => {
      throw rejectsParameters(error) ? new Error(POOLER, { cause: error }) : error;
    });
    if (row?.direct !== "on") throw new Error(POOLER);
    return row.standby;
  }

  #open(url: string): SQL {
    const { connections, queryTimeoutMs } = this.#options;
    const database = getDatabase(url);
    return new SQL(url, {
      max: connections,
      connectionTimeout: queryTimeoutMs / 5 / 1000,
      bigint: true,
      // Without this option, the variable PGDATABASE overrides the URL.
      ...(database !== "" && { database }),
      connection: sessionParameters(queryTimeoutMs),
    });
  }

  /** Subscribes to notifications. They only speed up polling, so a lost one causes no more than a delay. */
  #listenOn(sql: SQL): void {
    if (this.#onNotify === undefined || this.#listening?.sql === sql) return;
    const mayHaveMissed = (): void => this.#onNotify?.();
    const subscription = sql.listen(CHANNEL, (sequence) => this.#onNotify?.(Number(sequence)), mayHaveMissed);
    subscription.catch(mayHaveMissed);
    this.#listening = { sql, subscription };
  }
}

const UNREACHABLE = "; check that PostgreSQL is running, and the host and port of the URL";

/** The settings of each connection. They override those of the URL. */
const sessionParameters = (queryTimeoutMs: number) => ({
  application_name: "todo-service",
  default_transaction_isolation: "read committed",
  synchronous_commit: "on",
  statement_timeout: queryTimeoutMs,
  idle_in_transaction_session_timeout: queryTimeoutMs,
  search_path: "pg_catalog",
  [DIRECT_PARAMETER]: "on",
});

/** A session parameter that a connection pooler does not pass on. */
const DIRECT_PARAMETER = "todo_service.direct";
const POOLER =
  "a connection pooler drops the session settings of the service: connect to PostgreSQL directly";
const HOST_STATE = `SELECT pg_is_in_recovery() AS standby, current_setting('${DIRECT_PARAMETER}', true) AS direct`;

/** Ignores an error, because the next query reports it. */
const ignore = (): void => {};

/** Rejects with a TimeoutError if the database neither answers nor makes progress within `ms` milliseconds. */
export const answeredIn = <T>(ms: number, work: (progress: () => void) => Promise<T>): Promise<T> =>
  withTimeout(ms, () => new TimeoutError(`the database did not answer in ${ms / 1000} seconds`), work);

/** Splits a URL with several hosts, because neither `URL` nor the driver supports them. */
function splitUrls(url: string): string[] {
  const [, start = "", hosts = "", rest = ""] = /^(\w+:\/\/(?:[^/]*@)?)([^/?]*)(.*)$/s.exec(url) ?? [];
  // With a socket, as in postgres://user@/database?host=/run/postgresql, libpq allows no host here, but `URL` needs one.
  const named = hosts === "" && /[?&]host=/.test(rest) ? "localhost" : hosts;
  const urls = named.split(",").map((host) => `${start}${host}${rest}`);
  if (urls.every((one) => URL.canParse(one) && !/%(?![0-9a-f]{2})/i.test(one))) return urls;
  throw new Error(
    "the URL is invalid: in a password, write a special character as % and two digits, such as %23 for #",
  );
}

/** Throws if a URL sets a session parameter, by its name or as `options=-c NAME=VALUE`, because it would have no effect. */
function rejectSessionParameters(url: string): void {
  for (const [parameter, value] of new URL(url).searchParams) {
    const inOptions = [...value.matchAll(/(?:-c\s*|--)([\w.-]+)=/g)].map(([, name = ""]) => name);
    const names = (parameter === "options" ? inOptions : [parameter]).map((name) =>
      name.toLowerCase().replaceAll("-", "_"),
    );
    const ignored = names.find((name) => Object.hasOwn(sessionParameters(0), name));
    if (ignored === undefined) continue;
    const remedy = ignored === "search_path" ? "use one database for each list" : "remove it from the URL";
    throw new Error(`the service sets ${ignored} itself, so it has no effect in the URL: ${remedy}`);
  }
}

const getHost = (url: string): string => new URL(url).host || "localhost";

const getDatabase = (url: string): string => decodeURIComponent(new URL(url).pathname.slice(1));

/** Returns whether a connection failed because a pooler, such as pgbouncer, rejects session parameters. */
const rejectsParameters = (error: unknown): boolean =>
  error instanceof SQL.PostgresError && error.message.includes("startup parameter");

async function close(pool: Promise<SQL>, withinMs: number): Promise<void> {
  try {
    await (await pool).close({ timeout: withinMs / 1000 });
  } catch {
    // The pool was never connected or is already closed.
  }
}
