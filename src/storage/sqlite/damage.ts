import { type Database, SQLiteError } from "bun:sqlite";
import { errorMessage } from "../../error-message.ts";

/** The file of a store is damaged. The message says what is wrong. */
export class DamageError extends Error {
  override readonly name = "DamageError";
}

export const contentsDiffer = (): DamageError => new DamageError("its contents differ from their digest");

/** Errors of the system or of other connections. The contents may be fine. */
const OTHER_CAUSES =
  /^SQLITE_(?:AUTH|BUSY|CANTOPEN|FULL|INTERRUPT|IOERR|LOCKED|NOMEM|NOTADB|PERM|PROTOCOL|READONLY)/;

/** Returns whether an error means that the file of a store is damaged. The statements themselves are correct. */
export function isDamage(error: unknown): boolean {
  if (error instanceof DamageError) return true;
  return error instanceof SQLiteError && !OTHER_CAUSES.test(error.code ?? "");
}

/** Returns what PRAGMA integrity_check finds; an empty array for a sound file. */
export function findStructuralDamage(database: Database): string[] {
  try {
    const found = database.query<{ integrity_check: string }, []>("PRAGMA integrity_check").all();
    return found.flatMap(({ integrity_check: line }) => (line === "ok" ? [] : line.split("\n")));
  } catch (error) {
    if (isDamage(error)) return [errorMessage(error)];
    throw error;
  }
}

/** Returns what is damaged, and what to do. */
export function describeDamage(error: unknown): string {
  return `it is damaged (${errorMessage(error)}): run todo check for details; rescue the to-dos with todo export --skip-damaged, or restore a backup with todo restore`;
}
