import { SQL } from "bun";
import { Failure } from "../../failure.ts";

const CONNECT_WITHIN_S = 5;
const ANSWER_WITHIN_MS = 10_000;
const CHANNEL = "todo_service";

/** What can be sent with a query. */
export type Value = string | number | bigint | boolean | Uint8Array | null;

/** SQLSTATEs after which another connection, or another host, may do: read-only, shutting down, broken. */
const MOVE_ON = /^(?:25006|57P0[1-5]|08...)$/;

export interface PrimaryOptions {
  /** How many connections at most, besides the one that listens. */
  readonly connections: number;
  /** Called when another replica may have written, and when that may have gone unnoticed. */
  readonly onNotify: () => void;
}

/** The first of some hosts that can be written to; connected anew, to any of them, when it is lost. */
export class Primary {
  readonly #urls: readonly string[];
  readonly #options: PrimaryOptions;
  #pool: Promise<SQL> | undefined;

  /** @param url as libpq takes it: `postgres://user:password@host1:5432,host2:5432/database?sslmode=…` */
  constructor(url: string, options: PrimaryOptions) {
    this.#urls = urlsOf(url);
    this.#options = options;
  }

  /** Throws `store_unavailable`; whether the query took effect is then unknown. */
  async query<Row>(text: string, values: readonly Value[] = []): Promise<readonly Row[]> {
    try {
      return await this.run((sql) => sql.unsafe<Row[]>(text, [...values]));
    } catch (cause) {
      throw new Failure("store_unavailable", { cause });
    }
  }

  /** Does something with the pool; throws what it throws. */
  async run<T>(work: (sql: SQL) => Promise<T>): Promise<T> {
    this.#pool ??= this.#connect();
    const pool = this.#pool;
    try {
      const sql = await pool;
      return await within(ANSWER_WITHIN_MS, work(sql));
    } catch (error) {
      if (isLost(error) && this.#pool === pool) {
        this.#pool = undefined;
        close(pool);
      }
      throw error;
    }
  }

  async close(): Promise<void> {
    const pool = this.#pool;
    this.#pool = undefined;
    if (pool !== undefined) await close(pool);
  }

  async #connect(): Promise<SQL> {
    const reasons: string[] = [];
    for (const url of this.#urls) {
      const sql = new SQL(url, {
        max: this.#options.connections,
        connectionTimeout: CONNECT_WITHIN_S,
        bigint: true,
        connection: {
          application_name: "todo-service",
          synchronous_commit: "on",
          statement_timeout: ANSWER_WITHIN_MS,
          search_path: "pg_catalog",
        },
      });
      try {
        const [row] = await within<readonly { standby: boolean }[]>(
          ANSWER_WITHIN_MS,
          sql.unsafe("SELECT pg_is_in_recovery() AS standby"),
        );
        if (row?.standby === false) {
          this.#listen(sql);
          return sql;
        }
        reasons.push(`${hostOf(url)} is a standby`);
      } catch (error) {
        reasons.push(`${hostOf(url)}: ${error instanceof Error ? error.message : error}`);
      }
      await sql.close({ timeout: 0 });
    }
    throw new LostError(reasons.join("; "));
  }

  /** A notification wakes, no more: one that is lost, or a channel that cannot be had, costs some time. */
  #listen(sql: SQL): void {
    const { onNotify } = this.#options;
    sql.listen(CHANNEL, onNotify, onNotify).catch(onNotify);
  }
}

/** No host can be written to, or none answers in time. */
class LostError extends Error {
  override readonly name = "LostError";
}

/** Our own splitting: neither `URL` nor the driver takes several hosts. */
function urlsOf(url: string): string[] {
  const [, start = "", hosts = "", rest = ""] = /^(\w+:\/\/(?:[^/]*@)?)([^/?]*)(.*)$/s.exec(url) ?? [];
  return hosts.split(",").map((host) => `${start}${host}${rest}`);
}

const hostOf = (url: string): string => (URL.canParse(url) ? new URL(url).host : "a host that is none");

function isLost(error: unknown): boolean {
  if (!(error instanceof SQL.PostgresError)) return true;
  return error.errno === undefined || MOVE_ON.test(error.errno);
}

async function close(pool: Promise<SQL>): Promise<void> {
  try {
    await (await pool).close({ timeout: 0 });
  } catch {
    // It never was, or is no more.
  }
}

function within<T>(ms: number, work: Promise<T>): Promise<T> {
  const late = Promise.withResolvers<never>();
  const timer = setTimeout(() => late.reject(new LostError(`no answer in ${ms / 1000} seconds`)), ms);
  return Promise.race([work, late.promise]).finally(() => clearTimeout(timer));
}
