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

/**
 * Loads the contents of a file into memory. Throws a DamageError if they differ from their checksum. Deletes damaged rows that a
 * store can do without.
 */
export function load(database: Database, options: typeof DEFAULTS): StartContents {
  // All reads see one snapshot, and commands that change API keys do not wait for them.
  const snapshot = database.transaction(() => loadSnapshot(database, options));
  const { contents, damagedKeys, damageOfEvents } = assertReadable(() => snapshot.deferred());
  for (const keyHash of damagedKeys)
    database.query("DELETE FROM idempotency_records WHERE key_hash = ?").run(keyHash);
  if (damagedKeys.length > 0)
    options.onWarning(
      `${damagedKeys.length} damaged idempotency keys were deleted: a repeated request may create a second to-do`,
    );
  if (damageOfEvents === undefined) return contents;
  database.run("DELETE FROM events");
  options.onWarning(
    `all stored events were deleted, because ${damageOfEvents}: clients that reconnect load the list again`,
  );
  return { ...contents, position: { ...contents.position, epoch: randomId() } };
}

function loadSnapshot(database: Database, options: typeof DEFAULTS) {
  const { epoch, last_id: lastId, sequence } = storeRow(database);
  const position = { epoch, sequence: Number(sequence) };
  const table = new Table();
  const report = visitor(database, "loading", options.onProgress);
  assertUndamaged(database, (todos) => {
    table.appendRun(todos);
    report(todos);
  });
  const damagedKeys: string[] = [];
  const idempotencyRecords = [...storedIdempotencyRecords(database, (keyHash) => damagedKeys.push(keyHash))];
  warnOfClock(database, options);
  const { events, damage: damageOfEvents } = loadEvents(database, position, options.maxEvents);
  const contents = { position, lastId, table, events, idempotencyRecords };
  return { contents, damagedKeys, damageOfEvents };
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

/** Returns the events, or what is damaged. */
function loadEvents(
  database: Database,
  last: Position,
  maxEvents: number,
): { readonly events: readonly TodoEvent[]; readonly damage?: string } {
  try {
    return { events: readEvents(database, last, maxEvents) };
  } catch (error) {
    if (error instanceof DamageError) return { events: [], damage: error.message };
    throw error;
  }
}
