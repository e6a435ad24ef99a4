import type { Database } from "bun:sqlite";
import { MAX_TIME_MS } from "../../duration.ts";
import type { Position, TodoEvent } from "../../todo.ts";
import type { StartContents } from "../state.ts";
import type { DEFAULTS } from "../store.ts";
import { Table } from "../table/table.ts";
import { assertUndamaged, visitor } from "./contents.ts";
import { assertReadable, DamageError } from "./errors.ts";
import { randomId } from "./migrations.ts";
import { readEvents, storedIdempotencyRecords } from "./rows.ts";
import { storeRow } from "./store-row.ts";

/** Removes damaged rows that a store can do without. */
type Repair = () => void;

/**
 * Loads the contents of a file into memory. Throws a DamageError if they differ from their checksum.
 */
export function load(database: Database, options: typeof DEFAULTS): StartContents {
  const repairs: Repair[] = [];
  // All reads see one snapshot, and commands that change API keys do not wait for them.
  const snapshot = database.transaction(() => loadSnapshot(database, options, repairs));
  const contents = assertReadable(() => snapshot.deferred());
  for (const repair of repairs) repair();
  return contents;
}

function loadSnapshot(database: Database, options: typeof DEFAULTS, repairs: Repair[]): StartContents {
  const { epoch, last_id, sequence } = storeRow(database);
  const stored = { epoch, sequence: Number(sequence) };
  const table = new Table();
  const report = visitor(database, "loading", options.onProgress);
  assertUndamaged(database, (todos) => {
    table.appendRun(todos);
    report(todos);
  });
  const damaged: string[] = [];
  const idempotencyRecords = [...storedIdempotencyRecords(database, (keyHash) => damaged.push(keyHash))];
  if (damaged.length > 0) repairs.push(() => deleteDamaged(database, damaged, options));
  warnOfClock(database, options);
  const events = loadEvents(database, stored, options, repairs);
  const position = events === undefined ? { ...stored, epoch: randomId() } : stored;
  return { position, lastId: last_id, table, events: events ?? [], idempotencyRecords };
}

function deleteDamaged(database: Database, damaged: readonly string[], { onWarning }: typeof DEFAULTS): void {
  for (const keyHash of damaged)
    database.query("DELETE FROM idempotency_records WHERE key_hash = ?").run(keyHash);
  onWarning(
    `${damaged.length} damaged idempotency keys were deleted: a repeated request may create a second to-do`,
  );
}

/** A clock that is behind lets API keys and idempotency keys live longer than they should. */
function warnOfClock(database: Database, { now, onWarning }: typeof DEFAULTS): void {
  const row = database
    .query<{ newest: bigint | null }, [number]>(
      `SELECT max(time) AS newest FROM (
         SELECT max(created_at) AS time FROM idempotency_records
         UNION ALL SELECT max(created_at) FROM keys
         UNION ALL SELECT max(last_used_at) FROM keys
       ) WHERE time <= ?`,
    )
    .get(MAX_TIME_MS);
  const times = [now(), Number(row?.newest ?? 0n)] as const;
  if (times[0] >= times[1]) return;
  const [clock, newest] = times.map((time) => new Date(time).toISOString());
  onWarning(`the clock (${clock}) is behind the newest stored time (${newest}): set the clock`);
}

/** Returns `undefined` if the events are damaged. */
function loadEvents(
  database: Database,
  last: Position,
  { maxEvents, onWarning }: typeof DEFAULTS,
  repairs: Repair[],
): readonly TodoEvent[] | undefined {
  try {
    return readEvents(database, last, maxEvents);
  } catch (error) {
    if (!(error instanceof DamageError)) throw error;
    repairs.push(() => {
      database.run("DELETE FROM events");
      onWarning(
        `all stored events were deleted, because ${error.message}: clients that reconnect load the list again`,
      );
    });
    return undefined;
  }
}
