import { SQL } from "bun";
import { Failure } from "../../failure.ts";
import type { Awaitable } from "../../todo.ts";
import { migrate } from "./schema.ts";

const CHANNEL = "todo_service";

/** What can be sent with a query. */
export type Value = string | number | bigint | boolean | Uint8Array | null;

/** What is done with the pool; whatever takes long tells of progress. */
export type Work<T> = (sql: SQL, progress: () => void) => Promise<T>;

/** SQLSTATEs after which another connection, or another host, may do: read-only, a standby, shutting down, broken. */
const MOVE_ON = /^(?:25006|55000|57P0[1-5]|08...)$/;

export interface PrimaryOptions {
  /** How many connections at most, besides one that listens while somebody reads events. */
  readonly connections: number;
  /** How many milliseconds an answer may take; a connection to one host a fifth of them, for the next may answer. */
  readonly answerWithinMs: number;
}

export const PRIMARY_DEFAULTS: PrimaryOptions = { connections: 4, answerWithinMs: 10_000 };

/**
 * Opens something in a database, whose schema `todo_service` is made if it is not there, and brought up to date;
 * throws an Error that says why the database cannot be used.
 */
export async function openPrimary<Opened>(
  url: string,
  options: PrimaryOptions,
  open: (primary: Primary) => Awaitable<Opened>,
): Promise<Opened> {
  const primary = new Primary(url, options);
  try {
    await primary.run(migrate);
    return await open(primary);
  } catch (error) {
    await primary.close();
    throw error instanceof Failure ? error.cause : error;
  }
}

/** The first of some hosts that can be written to; connected anew, to any of them, when it is lost. */
export class Primary {
  readonly #urls: readonly string[];
  readonly #options: PrimaryOptions;
  #onNotify: ((n?: number) => void) | undefined;
  #listening: { readonly sql: SQL; readonly subscription: Promise<SQL.ListenSubscription> } | undefined;
  #pool: Promise<SQL> | undefined;
  #closed = false;

  /** @param url as libpq takes it: `postgres://user:password@host1:5432,host2:5432/database?sslmode=…` */
  constructor(url: string, options: PrimaryOptions) {
    this.#urls = urlsOf(url);
    this.#options = options;
  }

  /** Throws `store_unavailable`; whether the query took effect is then unknown. */
  query<Row>(text: string, values: readonly Value[] = []): Promise<readonly Row[]> {
    return this.run((sql) => sql.unsafe<Row[]>(text, [...values]));
  }

  /** Does something with the pool; throws `store_unavailable`, as `query` does. */
  async run<T>(work: Work<T>): Promise<T> {
    const pool = this.#connected();
    let sql: SQL | undefined;
    let isOver = false;
    try {
      return await within(this.#options.answerWithinMs, async (progress) => {
        const connected = await pool;
        // Whoever asked has been told that it failed.
        if (isOver) throw new Error("it was connected too late");
        sql = connected;
        return work(sql, progress);
      });
    } catch (cause) {
      isOver = true;
      if (sql !== undefined && isLost(cause)) this.#leave(pool);
      throw unavailable(cause);
    }
  }

  /**
   * Has a function called, if none is, with the position that the writes of a replica have come to, and without one
   * when that may have gone unnoticed.
   */
  listen(onNotify: (n?: number) => void): void {
    if (this.#onNotify !== undefined) return;
    this.#onNotify = onNotify;
    this.#pool?.then((sql) => this.#listenOn(sql), ignore);
  }

  /** Calls none any more: the database has less to do then. */
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
      pool.catch(() => this.#leave(pool));
      this.#pool = pool;
    }
    return this.#pool;
  }

  /** Connects anew the next time; what is under way in the pool may still end. */
  #leave(pool: Promise<SQL>): void {
    if (this.#pool !== pool) return;
    this.#pool = undefined;
    close(pool, this.#options.answerWithinMs);
  }

  async #connect(): Promise<SQL> {
    const reasons: string[] = [];
    for (const url of this.#urls) {
      if (this.#closed) throw new Error("the store is closed");
      const sql = this.#open(url);
      try {
        const [row] = await within<readonly { standby: boolean }[]>(this.#options.answerWithinMs, () =>
          sql.unsafe("SELECT pg_is_in_recovery() AS standby"),
        );
        if (row?.standby === false) {
          this.#listenOn(sql);
          return sql;
        }
        reasons.push(`${hostOf(url)}: it is a standby`);
      } catch (error) {
        reasons.push(`${hostOf(url)}: ${error instanceof Error ? error.message : error}`);
      }
      await sql.close({ timeout: 0 });
    }
    throw new Error(reasons.join("; "));
  }

  #open(url: string): SQL {
    const { connections, answerWithinMs } = this.#options;
    const database = databaseOf(url);
    return new SQL(url, {
      max: connections,
      connectionTimeout: answerWithinMs / 5 / 1000,
      bigint: true,
      // Else the variable PGDATABASE would win over the URL.
      ...(database !== "" && { database }),
      connection: {
        application_name: "todo-service",
        default_transaction_isolation: "read committed",
        synchronous_commit: "on",
        statement_timeout: answerWithinMs,
        idle_in_transaction_session_timeout: answerWithinMs,
        search_path: "pg_catalog",
      },
    });
  }

  /** A notification wakes, no more: one that is lost, or a channel that cannot be had, costs some time. */
  #listenOn(sql: SQL): void {
    if (this.#onNotify === undefined || this.#listening?.sql === sql) return;
    const mayHaveMissed = (): void => this.#onNotify?.();
    const subscription = sql.listen(CHANNEL, (n) => this.#onNotify?.(Number(n)), mayHaveMissed);
    subscription.catch(mayHaveMissed);
    this.#listening = { sql, subscription };
  }
}

/** Whoever asks for something next is told of what went wrong. */
const ignore = (): void => {};

export const unavailable = (cause: unknown): Failure =>
  cause instanceof Failure ? cause : new Failure("store_unavailable", { cause });

/** There was no answer in time: whatever was asked may still take effect. */
export class LateError extends Error {
  override readonly name = "LateError";
}

/** Rejects with a LateError when work takes longer than some milliseconds, or as long since it told of progress. */
export async function within<T>(ms: number, work: (progress: () => void) => Promise<T>): Promise<T> {
  const late = Promise.withResolvers<never>();
  const timer = setTimeout(() => late.reject(new LateError(`no answer in ${ms / 1000} seconds`)), ms);
  try {
    return await Promise.race([work(() => timer.refresh()), late.promise]);
  } finally {
    clearTimeout(timer);
  }
}

/** Our own splitting: neither `URL` nor the driver takes several hosts. */
function urlsOf(url: string): string[] {
  const [, start = "", hosts = "", rest = ""] = /^(\w+:\/\/(?:[^/]*@)?)([^/?]*)(.*)$/s.exec(url) ?? [];
  const urls = hosts.split(",").map((host) => `${start}${host}${rest}`);
  if (urls.every((one) => URL.canParse(one) && !/%(?![0-9a-f]{2})/i.test(one))) return urls;
  throw new Error(
    "that is no URL: in a password, write a special character as % and two digits, such as %23",
  );
}

const hostOf = (url: string): string => new URL(url).host || "localhost";

const databaseOf = (url: string): string => decodeURIComponent(new URL(url).pathname.slice(1));

function isLost(error: unknown): boolean {
  if (!(error instanceof SQL.PostgresError)) return error instanceof LateError;
  return error.errno === undefined || MOVE_ON.test(error.errno);
}

async function close(pool: Promise<SQL>, withinMs: number): Promise<void> {
  try {
    await (await pool).close({ timeout: withinMs / 1000 });
  } catch {
    // It never was, or is no more.
  }
}
