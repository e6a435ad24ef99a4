import { Database } from "bun:sqlite";

/** What SQLite says of a file that no server uses: "ok" when it is whole. */
export function integrity(path: string): unknown {
  // Not to write, for then SQLite would move the log to the file, which is for the next server to do.
  const database = new Database(path, { readonly: true });
  try {
    return database.query<{ integrity_check: string }, []>("PRAGMA integrity_check").get()?.integrity_check;
  } finally {
    database.close();
  }
}
