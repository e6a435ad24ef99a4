import { SQL } from "bun";

/** A session parameter that a connection pooler does not pass on. */
export const DIRECT_PARAMETER = "todo_service.direct";
/** The SQLSTATE with which pgbouncer rejects unknown session parameters, and transactions in statement mode. */
const PROTOCOL_VIOLATION = "08P01";
/** A pooler in transaction mode is usually found in the first round; other clients may delay that. */
const ROUNDS = 5;

const isViolation = (error: unknown, text: string): boolean =>
  error instanceof SQL.PostgresError && error.errno === PROTOCOL_VIOLATION && error.message.includes(text);

/** Returns whether a connection failed because a pooler rejects session parameters. */
export const rejectsParameters = (error: unknown): boolean => isViolation(error, "startup parameter");

/** The settings of a session, in the units of PostgreSQL. */
interface Settings {
  readonly role: string;
  readonly default_transaction_isolation: string;
  readonly synchronous_commit: string;
  readonly statement_timeout: string;
  readonly idle_in_transaction_session_timeout: string;
}

const SETTINGS = `SELECT quote_ident(current_user) AS role,
  current_setting('default_transaction_isolation') AS default_transaction_isolation,
  current_setting('synchronous_commit') AS synchronous_commit,
  current_setting('statement_timeout') AS statement_timeout,
  current_setting('idle_in_transaction_session_timeout') AS idle_in_transaction_session_timeout`;

/**
 * Checks a connection pooler. Throws an Error that says what to do, unless each connection has a session of its own, and
 * the sessions have the settings that the service needs.
 * @param sql two connections, which are used for this only
 */
export async function checkPooler(sql: SQL): Promise<void> {
  const [one, other] = [await sql.reserve(), await sql.reserve()];
  try {
    for (let round = 0; round < ROUNDS; round++) await expectOwnSessions(one, other);
    const [settings] = await one.unsafe<Settings[]>(SETTINGS).simple();
    if (settings !== undefined) assertSettings(settings);
  } finally {
    one.release();
    other.release();
  }
}

/** In statement mode, BEGIN fails. In transaction mode, both connections use the same session, or a connection changes its session. */
async function expectOwnSessions(one: SQL, other: SQL): Promise<void> {
  const before = await querySession(one);
  await other
    .unsafe("BEGIN")
    .simple()
    .catch((error: unknown) => {
      throw isViolation(error, "statement pooling") ? needsSessions("statement") : error;
    });
  const meanwhile = await querySession(other);
  const after = await querySession(one);
  await other.unsafe("COMMIT").simple();
  if (before === after && before !== meanwhile) return;
  throw needsSessions("transaction");
}

const needsSessions = (mode: "transaction" | "statement"): Error =>
  new Error(
    `the connection pooler is in ${mode} mode, but LISTEN, prepared statements and session settings need a session for each connection: set pool_mode = session in pgbouncer, or connect to PostgreSQL directly`,
  );

async function querySession(sql: SQL): Promise<number | undefined> {
  const [row] = await sql.unsafe<{ pid: number }[]>("SELECT pg_backend_pid() AS pid").simple();
  return row?.pid;
}

function assertSettings({ role, ...settings }: Settings): void {
  const wrong = [
    settings.default_transaction_isolation !== "read committed" &&
      "default_transaction_isolation = 'read committed'",
    !["on", "remote_apply"].includes(settings.synchronous_commit) && "synchronous_commit = 'on'",
    settings.statement_timeout === "0" && "statement_timeout = '10s'",
    settings.idle_in_transaction_session_timeout === "0" && "idle_in_transaction_session_timeout = '10s'",
  ].filter((assignment) => assignment !== false);
  if (wrong.length === 0) return;
  const statements = wrong.map((assignment) => `ALTER ROLE ${role} SET ${assignment}`).join("; ");
  throw new Error(
    `the connection pooler does not pass on session settings: run ${statements}; then RECONNECT in pgbouncer's console`,
  );
}
