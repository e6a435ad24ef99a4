import { PRIMARY_DEFAULTS, type Primary, withPrimary } from "./primary.ts";
import { assertSufficientRights } from "./schema.ts";

/**
 * Checks that a database accepts writes and that the role has the rights of a server, and changes nothing. Returns the time
 * of the database's clock in milliseconds. Throws an Error with the reason.
 */
export function probePostgres(url: string): Promise<number> {
  return withPrimary(url, checkPrimary, { ...PRIMARY_DEFAULTS, connections: 1 });
}

async function checkPrimary(primary: Primary): Promise<number> {
  const [row] = await primary.query<{ now: string; read_only: string }>(
    `SELECT (extract(epoch FROM clock_timestamp()) * 1000)::text AS now,
            current_setting('transaction_read_only') AS read_only`,
  );
  if (row === undefined || row.read_only === "on") throw new Error("the database is read-only");
  await primary.run(assertSufficientRights);
  return Number(row.now);
}
