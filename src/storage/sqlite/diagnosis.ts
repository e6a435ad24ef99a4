/** What is wrong with a store that cannot be used. */
import { copyFileSync } from "node:fs";
import { errorMessage, getErrno } from "../../error-message.ts";
import { assertIntact } from "./contents.ts";
import { describeAccessError, isDamage } from "./errors.ts";
import { createPrivate, hasWal, removeDatabase, temporaryCopy } from "./files.ts";
import { type OpenMode, openDatabase } from "./open.ts";
import { storeRow } from "./store-row.ts";
import { describeWaysOut, quoteArgument } from "./ways-out.ts";

/** SQLite repeats the text of a damaged schema, which has line breaks. */
export const inOneLine = (message: string): string => message.replaceAll(/\s+/g, " ");

/** Returns why a store cannot be opened, and what to do where SQLite's message does not help. */
export function describeOpenError(path: string, error: unknown): string {
  if (isDamage(error)) return describeDamage(path, error);
  if (getErrno(error) === "SQLITE_NOTADB") {
    return `${errorMessage(error)}: name another file; if it was a store, ${describeWaysOut(path)}`;
  }
  return describeAccessError(path, error);
}

/** Returns what is damaged, and what to do. */
export const describeDamage = (path: string, error: unknown): string =>
  `it is damaged (${inOneLine(errorMessage(error))}; todo check has details): ${describeWaysOut(path, ["save what can be read with todo export --skip-damaged"], withoutOldWal(path))}`;

/** Returns what a store has lost, and what to do. */
export const describeLoss = (path: string, loss: string): string =>
  `${loss}: ${describeWaysOut(path, [`continue without them with todo accept-loss ${quoteArgument(path)}`], withoutOldWal(path))}`;

/** SQLite lets the pages of a WAL hide those of the database, also if the WAL is older. Returns how to get them back. */
function withoutOldWal(path: string): string[] {
  if (!hasWal(path)) return [];
  const together = countTransactions(path, "readOnly") ?? -1;
  const alone = countAlone(path) ?? -1;
  if (alone <= together) return [];
  return [
    `stop all servers of the store and move ${path}-wal away, because it is old, and ${path} alone is sound and has ${alone} ${alone === 1 ? "transaction" : "transactions"}`,
  ];
}

/** Returns the number of transactions in a database without its WAL. Reads a copy, because SQLite would use the WAL. */
function countAlone(path: string): number | undefined {
  const copy = temporaryCopy(path);
  try {
    createPrivate(copy);
    copyFileSync(path, copy);
    return countTransactions(copy, "exclusive");
  } catch {
    // The message about the store is more important than a reason, such as a full disk.
    return undefined;
  } finally {
    removeDatabase(copy);
  }
}

/** Returns the number of transactions of a sound store; `undefined` if it cannot be read or is damaged. */
function countTransactions(path: string, mode: OpenMode): number | undefined {
  try {
    using database = openDatabase(path, mode);
    assertIntact(database);
    return Number(storeRow(database).transactions);
  } catch {
    return undefined;
  }
}
