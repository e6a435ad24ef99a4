import type { SQL } from "bun";
import tablesAndFunctions from "./migrations/001-tables-and-functions.sql" with { type: "text" };
import evictIdempotencyKeys from "./migrations/002-evict-idempotency-keys.sql" with { type: "text" };

/** All migrations of the database, in order. A released migration must never change. */
export const MIGRATIONS: readonly string[] = [tablesAndFunctions, evictIdempotencyKeys];

/** An arbitrary number that all replicas share. */
const MIGRATION_LOCK = 7_460_236_015;

/** Applies the missing migrations, one replica at a time. Throws if a newer version wrote the database. */
export async function migrate(sql: SQL): Promise<void> {
  await sql.begin(async (transaction) => {
    await transaction.unsafe("SELECT pg_advisory_xact_lock($1)", [MIGRATION_LOCK]);
    const [found] = await transaction.unsafe<{ encoding: string; schema: boolean }[]>(
      `SELECT pg_encoding_to_char(encoding) AS encoding, to_regnamespace('todo_service') IS NOT NULL AS schema
       FROM pg_database WHERE datname = current_database()`,
    );
    if (found?.encoding !== "UTF8")
      throw new Error(`the database has the encoding ${found?.encoding}: create one with the encoding UTF8`);
    // An existing schema needs no right to create one.
    if (!found.schema) await transaction.unsafe("CREATE SCHEMA todo_service");
    await transaction.unsafe("CREATE TABLE IF NOT EXISTS todo_service.format (version bigint NOT NULL)");
    const [format] = await transaction.unsafe<{ version: bigint }[]>(
      "SELECT version FROM todo_service.format",
    );
    const version = Number(format?.version ?? 0);
    if (version === MIGRATIONS.length) return;
    if (version > MIGRATIONS.length) {
      throw new Error(
        `it was written by a newer version of this program (format ${version}; this version knows formats up to ${MIGRATIONS.length}): use the newer version`,
      );
    }
    for (const migration of MIGRATIONS.slice(version)) await transaction.unsafe(migration).simple();
    await transaction.unsafe("DELETE FROM todo_service.format");
    await transaction.unsafe("INSERT INTO todo_service.format VALUES ($1)", [MIGRATIONS.length]);
  });
}
