import type { SQL } from "bun";
import type { MigrationSummary } from "../maintenance.ts";
import functions from "./functions.sql" with { type: "text" };
import { withPrimary } from "./primary.ts";
import tables from "./tables.sql" with { type: "text" };

/** The version of the schema. A later one needs the statements that change this one. */
const VERSION = 1;

/** An arbitrary number that all replicas share. */
const MIGRATION_LOCK = 7_460_236_015;

/** What the system catalogs say about the schema. Every role may read them. Names are quoted as SQL needs them. */
interface Catalog {
  readonly encoding: string;
  readonly role: string;
  readonly hasSchema: boolean;
  /** Whether the schema has its tables. */
  readonly hasTables: boolean;
  /** The owner of the tables, of the schema without tables, or of the database without a schema. */
  readonly owner: string;
  /** Whether the role has the rights of this owner. */
  readonly isOwner: boolean;
  /** Whether the role may call all functions or create what is missing. */
  readonly hasRights: boolean;
  /** The first owner of the schema or of its tables that is not a superuser, if the role is one; otherwise null. */
  readonly ordinaryOwner: string | null;
}

const CATALOG = `
  SELECT pg_encoding_to_char(d.encoding) AS encoding, quote_ident(current_user) AS role,
    s.oid IS NOT NULL AS "hasSchema", c.oid IS NOT NULL AS "hasTables",
    quote_ident(pg_get_userbyid(o.owner)) AS owner, pg_has_role(o.owner, 'USAGE') AS "isOwner",
    CASE WHEN c.oid IS NOT NULL THEN has_schema_privilege(s.oid, 'USAGE') AND NOT EXISTS (
        SELECT FROM pg_proc p WHERE p.pronamespace = s.oid AND NOT has_function_privilege(p.oid, 'EXECUTE'))
      WHEN s.oid IS NOT NULL THEN has_schema_privilege(s.oid, 'CREATE')
      ELSE has_database_privilege(d.oid, 'CREATE') END AS "hasRights",
    (SELECT quote_ident(rolname) FROM pg_roles r WHERE r.oid IN (s.nspowner, c.relowner) AND NOT rolsuper
      AND (SELECT rolsuper FROM pg_roles WHERE rolname = current_user) LIMIT 1) AS "ordinaryOwner"
  FROM pg_database d
  LEFT JOIN pg_namespace s ON s.nspname = 'todo_service'
  LEFT JOIN pg_class c ON c.relnamespace = s.oid AND c.relname = 'format',
  coalesce(c.relowner, s.nspowner, d.datdba) AS o (owner)
  WHERE d.datname = current_database()`;

/** Creates the schema if it is missing. Throws an Error that says what to do if the role cannot use it. */
export async function ensureSchema(sql: SQL): Promise<void> {
  if (!(await readSchema(sql)).hasTables) await migrate(sql);
}

/**
 * Checks that a database accepts writes and that the role has the rights of a server, and changes nothing. Returns the time
 * of the database's clock in milliseconds. Throws an Error with the reason.
 */
export function probePostgres(url: string): Promise<number> {
  return withPrimary(url, async (primary) => {
    const [row] = await primary.query<{ now: string; read_only: string }>(
      `SELECT (extract(epoch FROM clock_timestamp()) * 1000)::text AS now,
                current_setting('transaction_read_only') AS read_only`,
    );
    if (row === undefined || row.read_only === "on") throw new Error("the database is read-only");
    await primary.run(readSchema);
    return Number(row.now);
  });
}

/** Creates the schema if it is missing, one process at a time. Throws what `ensureSchema` throws. */
export function migrate(sql: SQL): Promise<MigrationSummary> {
  return sql.begin(async (transaction) => {
    await transaction.unsafe("SELECT pg_advisory_xact_lock($1)", [MIGRATION_LOCK]);
    const { hasSchema, hasTables, isOwner, owner } = await readSchema(transaction);
    if (hasTables) return { from: VERSION, to: VERSION };
    // The functions run with the rights of their owner, and the owner of the schema can replace them.
    if (hasSchema && isOwner) await transaction.unsafe(`SET LOCAL ROLE ${owner}`);
    if (!hasSchema) await transaction.unsafe("CREATE SCHEMA todo_service");
    await transaction.unsafe(tables).simple();
    await transaction.unsafe(functions).simple();
    // PostgreSQL lets every role execute new functions, and these have the rights of the owner.
    await transaction.unsafe("REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA todo_service FROM PUBLIC");
    return { from: 0, to: VERSION };
  });
}

/** Reads the catalogs. Throws an Error that says what to do if the role cannot use the schema, or create it. */
async function readSchema(sql: SQL): Promise<Catalog> {
  const [catalog] = await sql.unsafe<Catalog[]>(CATALOG);
  if (catalog === undefined) throw new Error("the database does not appear in pg_database");
  const { encoding, role, owner, ordinaryOwner } = catalog;
  if (encoding !== "UTF8")
    throw new Error(`the database has the encoding ${encoding}: create one with the encoding UTF8`);
  // The owner can replace the functions that this role is about to call.
  if (ordinaryOwner !== null)
    throw new Error(
      `${role} is a superuser, and ${ordinaryOwner}, the owner of the schema todo_service, could run code with its rights: connect as ${ordinaryOwner}`,
    );
  if (!catalog.hasRights)
    throw new Error(
      `the role ${role} may not use the schema todo_service: as ${owner}, run "todo migrate", then GRANT USAGE ON SCHEMA todo_service TO ${role}; GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA todo_service TO ${role}`,
    );
  if (catalog.hasTables) await expectVersion(sql);
  return catalog;
}

async function expectVersion(sql: SQL): Promise<void> {
  const [row] = await sql.unsafe<{ version: bigint }[]>("SELECT todo_service.format_version() AS version");
  const version = Number(row?.version ?? 0);
  if (version !== VERSION)
    throw new Error(
      `it was written by another version of this program (format ${version}; this version knows format ${VERSION}): use that version`,
    );
}
