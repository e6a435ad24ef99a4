import { SQL } from "bun";
import type { MigrationSummary } from "../maintenance.ts";
import format1 from "./format-1.sql" with { type: "text" };
import format2 from "./format-2.sql" with { type: "text" };
import functions from "./functions.sql" with { type: "text" };
import { withPrimary } from "./primary.ts";

/** The changes of the tables in order. A released one must never change. */
const MIGRATIONS: readonly string[] = [format1, format2];

/** An arbitrary number that all replicas share. */
const MIGRATION_LOCK = 7_460_236_015;
const INSUFFICIENT_PRIVILEGE = "42501";

/** What the system catalogs say about the schema. Every role may read them. */
interface Catalog {
  readonly encoding: string;
  readonly role: string;
  readonly hasSchema: boolean;
  /** The owner of the schema; null if the schema does not exist or the role does not have the rights of its owner. */
  readonly schemaOwner: string | null;
  /** The owner of the tables; null if there are none. */
  readonly owner: string | null;
  /** Whether the role has the rights of the owner. */
  readonly isOwner: boolean;
  readonly isSuperuser: boolean;
  /** The first owner of the schema or of its tables that is not a superuser; null if there is none. */
  readonly ordinaryOwner: string | null;
  /** Whether the role may create what is missing: the schema, or tables in the existing schema. */
  readonly mayCreate: boolean;
}

const CATALOG = `
  SELECT pg_encoding_to_char(d.encoding) AS encoding, current_user AS role, s.oid IS NOT NULL AS "hasSchema",
    CASE WHEN pg_has_role(s.nspowner, 'USAGE') THEN pg_get_userbyid(s.nspowner) END AS "schemaOwner",
    pg_get_userbyid(c.relowner) AS owner, coalesce(pg_has_role(c.relowner, 'USAGE'), false) AS "isOwner",
    (SELECT rolsuper FROM pg_roles WHERE rolname = current_user) AS "isSuperuser",
    (SELECT rolname FROM pg_roles r WHERE r.oid IN (s.nspowner, c.relowner) AND NOT rolsuper LIMIT 1) AS "ordinaryOwner",
    CASE WHEN s.oid IS NULL THEN has_database_privilege(d.oid, 'CREATE')
      ELSE has_schema_privilege(s.oid, 'CREATE') END AS "mayCreate"
  FROM pg_database d
  LEFT JOIN pg_namespace s ON s.nspname = 'todo_service'
  LEFT JOIN pg_class c ON c.relnamespace = s.oid AND c.relname = 'format'
  WHERE d.datname = current_database()`;

/**
 * Makes sure that the schema is current. Changes nothing if it is. Otherwise applies the missing migrations, if the role
 * may do so. Throws an Error that says what to do.
 */
export async function ensureSchema(sql: SQL): Promise<void> {
  const version = await readVersion(sql, await readCatalog(sql));
  if (version < MIGRATIONS.length) await migrate(sql);
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
    await primary.run(assertSufficientRights);
    return Number(row.now);
  });
}

/** Throws an Error that says what to do if a server with this role could not start or not write. Changes nothing. */
async function assertSufficientRights(sql: SQL): Promise<void> {
  const catalog = await readCatalog(sql);
  const { owner, isOwner, mayCreate, role } = catalog;
  if (owner === null) {
    if (mayCreate || catalog.schemaOwner !== null) return;
    throw new Error(`the role ${role} may not create the schema todo_service: ${CREATE_AS_OWNER}`);
  }
  const version = await readVersion(sql, catalog);
  if (isOwner) return;
  if (version < MIGRATIONS.length) throw notCurrent(catalog);
  const [missing] = await sql.unsafe<{ names: string | null }[]>(FORBIDDEN_FUNCTIONS);
  const names = missing?.names ?? "";
  if (names !== "") throw new Error(`the role ${role} may not execute ${names}: ${grantTo(role, owner)}`);
}

const FORBIDDEN_FUNCTIONS = `
  SELECT string_agg(DISTINCT p.proname, ', ') AS names FROM pg_proc p
  WHERE p.pronamespace = 'todo_service'::regnamespace AND NOT has_function_privilege(p.oid, 'EXECUTE')`;

const CREATE_AS_OWNER =
  'run "todo migrate" as the owner of the database, which creates the schema todo_service';

/** Applies the missing migrations, one process at a time. Throws if a newer version wrote the database. */
export async function migrate(sql: SQL): Promise<MigrationSummary> {
  try {
    return await sql.begin(applyMissing);
  } catch (error) {
    if (!(error instanceof SQL.PostgresError) || error.errno !== INSUFFICIENT_PRIVILEGE) throw error;
    throw new Error(`${error.message}: ${CREATE_AS_OWNER}`, { cause: error });
  }
}

async function applyMissing(transaction: SQL): Promise<MigrationSummary> {
  await transaction.unsafe("SELECT pg_advisory_xact_lock($1)", [MIGRATION_LOCK]);
  const catalog = await readCatalog(transaction);
  if (catalog.owner !== null && !catalog.isOwner) throw notCurrent(catalog);
  // The functions run with the rights of their owner, and the owner of the schema can replace them.
  const owner = catalog.owner ?? catalog.schemaOwner;
  if (owner !== null) await transaction.unsafe(`SET LOCAL ROLE ${quoteIdentifier(owner)}`);
  const to = MIGRATIONS.length;
  const from = await readVersion(transaction, catalog);
  if (from === to) return { from, to };
  // An existing schema needs no right to create one.
  if (!catalog.hasSchema) await transaction.unsafe("CREATE SCHEMA todo_service");
  const roles = await transaction.unsafe<{ name: string }[]>(ROLES_OF_SERVERS);
  for (const migration of [...MIGRATIONS.slice(from), functions])
    await transaction.unsafe(migration).simple();
  await transaction.unsafe("UPDATE todo_service.format SET version = $1", [to]);
  const all = "EXECUTE ON ALL FUNCTIONS IN SCHEMA todo_service";
  // PostgreSQL lets every role execute new functions, and these have the rights of the owner.
  await transaction.unsafe(`REVOKE ${all} FROM PUBLIC`);
  for (const { name } of roles) await transaction.unsafe(`GRANT ${all} TO ${name}`);
  return { from, to };
}

/** The roles, quoted, that may execute a function of the schema besides its owner. New functions need the same rights. */
const ROLES_OF_SERVERS = `
  SELECT DISTINCT a.grantee::regrole::text AS name FROM pg_proc p
  JOIN pg_namespace n ON n.oid = p.pronamespace AND n.nspname = 'todo_service', aclexplode(p.proacl) a
  WHERE a.grantee NOT IN (0, p.proowner)`;

async function readCatalog(sql: SQL): Promise<Catalog> {
  const [catalog] = await sql.unsafe<Catalog[]>(CATALOG);
  if (catalog === undefined) throw new Error("the database does not appear in pg_database");
  const { encoding, role, isSuperuser, ordinaryOwner } = catalog;
  if (encoding !== "UTF8")
    throw new Error(`the database has the encoding ${encoding}: create one with the encoding UTF8`);
  // The owner can replace the functions that this role is about to call.
  if (isSuperuser && ordinaryOwner !== null)
    throw new Error(
      `${role} is a superuser, and ${ordinaryOwner}, the owner of the schema todo_service, could run code with its rights: connect as ${ordinaryOwner}`,
    );
  return catalog;
}

/** Returns the number of applied migrations. Throws if it is greater than that of the known ones. */
async function readVersion(sql: SQL, { owner, role }: Catalog): Promise<number> {
  if (owner === null) return 0;
  const rows = await sql
    .unsafe<{ version: bigint }[]>("SELECT todo_service.format_version() AS version")
    .catch((error) => {
      if (!(error instanceof SQL.PostgresError) || error.errno !== INSUFFICIENT_PRIVILEGE) throw error;
      throw new Error(`${error.message}: ${grantTo(role, owner)}`, { cause: error });
    });
  const version = Number(rows[0]?.version ?? 0);
  const known = MIGRATIONS.length;
  if (version <= known) return version;
  throw new Error(
    `it was written by a newer version of this program (format ${version}; this version knows formats up to ${known}): use the newer version`,
  );
}

const notCurrent = ({ owner, role }: Catalog): Error =>
  new Error(
    `the schema todo_service is from an older version, and the role ${role} may not change it: run "todo migrate" as its owner, ${owner}`,
  );

/** Returns the statements that give a role the rights of a server. */
function grantTo(role: string, owner: string): string {
  const grantee = quoteIdentifier(role);
  return `as ${owner}, run GRANT USAGE ON SCHEMA todo_service TO ${grantee}; GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA todo_service TO ${grantee}`;
}

const quoteIdentifier = (name: string): string => `"${name.replaceAll('"', '""')}"`;
