import { Database } from "bun:sqlite";

/** Returns the result of SQLite's integrity check for a file that no server uses: "ok" if it is sound. */
export function integrity(path: string): unknown {
  // Opened read-only, because SQLite would otherwise checkpoint the log, which the test leaves to the next server.
  using database = new Database(path, { readonly: true });
  return database.query<{ integrity_check: string }, []>("PRAGMA integrity_check").get()?.integrity_check;
}
