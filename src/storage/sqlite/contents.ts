import type { Database } from "bun:sqlite";
import { type KeyRow, storedKeyOf } from "../records/key-row.ts";
import { countersText, type Digest, DigestSum, keyText } from "./digest.ts";
import { storedDigest, storeRow } from "./store-row.ts";

/** An SQL expression for the JSON of a row of `todos`. */
export const TODO_JSON = `'{"id":' || id || ',"title":' || title || ',"done":' || iif(done, 'true', 'false') || '}'`;

/** Yields all to-dos by ascending id. */
export function todoRows(database: Database): Iterable<{ readonly id: bigint; readonly json: string }> {
  return database
    .query<{ id: bigint; json: string }, []>(`SELECT id, ${TODO_JSON} AS json FROM todos ORDER BY id`)
    .iterate();
}

/** Yields the texts of all rows of the digest except the to-dos. */
export function* otherTexts(database: Database): Generator<string> {
  for (const key of database.query<KeyRow, []>("SELECT * FROM keys").iterate())
    yield keyText(storedKeyOf(key));
  yield countersText(storeRow(database));
}

/** Returns the digest of the current contents. */
export function computeDigest(database: Database): Digest {
  const sum = new DigestSum();
  for (const { json } of todoRows(database)) sum.add(json);
  for (const text of otherTexts(database)) sum.add(text);
  return sum.value;
}

export function storeDigest(database: Database, { first, second }: Digest): void {
  database.query("UPDATE store SET digest_a = ?, digest_b = ?").run(first, second);
}

/** Returns how many to-dos are not what this program writes. */
export function countInvalidTodos(database: Database): number {
  const row = database
    .query<{ invalid: bigint }, [bigint]>(
      `SELECT count(*) AS invalid FROM todos
       WHERE id NOT BETWEEN 1 AND ? OR NOT json_valid(title) OR title NOT LIKE '"%' OR done NOT IN (0, 1)`,
    )
    .get(storeRow(database).last_id);
  return Number(row?.invalid);
}

/** Returns whether the contents have the stored digest; `undefined` if no digest is stored. */
export function matchesStoredDigest(database: Database, computed: Digest): boolean | undefined {
  const stored = storedDigest(storeRow(database));
  return stored && stored.first === computed.first && stored.second === computed.second;
}
