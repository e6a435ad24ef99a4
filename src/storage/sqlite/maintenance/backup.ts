import { Database } from "bun:sqlite";
import { chmodSync, copyFileSync, existsSync, renameSync, rmSync, statSync } from "node:fs";
import { dirname } from "node:path";
import { describeFsError, getErrno } from "../../../error-message.ts";
import { createFileAtomic, fsyncPath, removeDatabase } from "../../atomic-file.ts";
import { type BackupSummary, PreconditionError, type RestoreSummary } from "../../maintenance.ts";
import { assertOwnSchema, connect } from "../connection.ts";
import { assertValidTodos, computeDigest, matchesStoredDigest, storeDigest } from "../contents.ts";
import { contentsDiffer, DamageError, findStructuralDamage, isDamage } from "../damage.ts";
import { beginMark, checkMark, markPath, removeMark } from "../mark.ts";
import { assertKnownFormat, migrate, newEpoch } from "../migrations.ts";
import { createPrivate, hasOnlyWal, hasWal } from "../open-file.ts";
import { storeRow } from "../store-row.ts";
import {
  openOrRefuse,
  UnreadableError,
  withExclusiveAccess,
  withSharedAccess,
  withUnchangedStore,
  yieldToEventLoop,
} from "./access.ts";
import { checkDatabase } from "./check.ts";

/** Only the owner may read a backup, because it contains the hashes of API keys. */
const MODE = 0o600;

/** Implements `StoreAdmin.backup`. The file is a complete store; a server can open it directly. */
export function backup(path: string, file: string, signal: AbortSignal): Promise<BackupSummary> {
  return withSharedAccess(path, (source) =>
    createFileAtomic(file, MODE, async (part) => {
      source.run("VACUUM INTO ?", [part]);
      await yieldToEventLoop(signal);
      const copy = openCopy(part);
      try {
        const copied = summaryOf(copy);
        checkIntegrity(copy);
        resetEpoch(copy);
        return { ...copied, bytes: statSync(part).size };
      } finally {
        copy.close();
      }
    }),
  );
}

/** Implements `StoreAdmin.restore`. */
export async function restore(path: string, file: string, signal: AbortSignal): Promise<RestoreSummary> {
  const part = `${path}.part`;
  assertBackupFile(file);
  if (isSameFile(file, part)) throw new PreconditionError(`restore would overwrite ${file}: rename it first`);
  return withExclusiveAccess(path, async () => {
    const hasLoss = hasOnlyWal(path) || (existsSync(path) && (await isLostOrDamaged(path)));
    if (!hasLoss) assertEmpty(path);
    removeDatabase(part);
    try {
      createPrivate(part);
      copyFileSync(file, part);
      chmodSync(part, MODE);
      const copied = openOrRefuse(file, () => migrateCopy(part));
      // A server that sets WAL itself and is killed meanwhile would leave a rollback journal, which hides the position.
      connect(part).close();
      await yieldToEventLoop(signal);
      fsyncPath(part);
      const movedTo = hasLoss ? moveAside(path) : undefined;
      removeMark(path);
      // SQLite would replay the log that a crashed server left beside its empty store.
      for (const suffix of ["-wal", "-shm", "-journal"]) rmSync(path + suffix, { force: true });
      fsyncPath(dirname(path));
      renameSync(part, path);
      fsyncPath(dirname(path));
      beginMark(path, copied.position.epoch);
      return { ...copied, bytes: statSync(path).size, movedTo };
    } finally {
      removeDatabase(part);
    }
  });
}

/**
 * Returns whether a file is a store that is damaged or has lost changes. An unreadable file
 * may have been such a store. The database of another program was not.
 */
async function isLostOrDamaged(path: string): Promise<boolean> {
  try {
    if (checkMark(path).loss !== undefined) return true;
  } catch (error) {
    if (isDamage(error) || getErrno(error) === "SQLITE_NOTADB") return true;
    throw error;
  }
  try {
    return await withUnchangedStore(
      path,
      (database) =>
        assertKnownFormat(database) > 0 && checkDatabase(path, database).some(({ isSound }) => !isSound),
    );
  } catch (error) {
    if (error instanceof UnreadableError) return true;
    if (error instanceof PreconditionError) return false;
    throw error;
  }
}

/** Renames the files of a store, so that a restore can take its place. Returns the new path. */
function moveAside(path: string): string {
  const aside = `${path}.${new Date().toISOString().replaceAll(/[-:.]/g, "")}`;
  // The mark comes last: without it, a server would start on a store that lost changes.
  if (hasWal(path)) renameSync(`${path}-wal`, `${aside}-wal`);
  if (existsSync(path)) renameSync(path, aside);
  fsyncPath(dirname(path));
  if (existsSync(markPath(path))) renameSync(markPath(path), markPath(aside));
  return aside;
}

/** Returns whether two paths name the same file. The first file must exist. */
function isSameFile(file: string, other: string): boolean {
  const [one, another] = [
    statSync(file, { bigint: true }),
    statSync(other, { bigint: true, throwIfNoEntry: false }),
  ];
  return one.dev === another?.dev && one.ino === another.ino;
}

function summaryOf(database: Database): Omit<BackupSummary, "bytes"> {
  const { epoch, n } = storeRow(database);
  const todos = database.query<{ todos: bigint }, []>("SELECT count(*) AS todos FROM todos").get()?.todos;
  return { todos: Number(todos), position: { epoch, sequence: Number(n) } };
}

/** Opens a private copy without WAL, so that all data is in one file. */
function openCopy(part: string): Database {
  const database = new Database(part, { safeIntegers: true });
  database.run("PRAGMA journal_mode = DELETE");
  return database;
}

/** Gives the copy a new epoch and deletes its events, so that old positions are unknown to it. */
function resetEpoch(copy: Database): void {
  // Events contain the titles of deleted to-dos.
  copy.run("PRAGMA secure_delete = ON");
  copy.transaction(() => {
    copy.run("DELETE FROM events");
    copy.run("UPDATE store SET epoch = ?, transactions = 0", [newEpoch()]);
    storeDigest(copy, computeDigest(copy));
  })();
}

/** Throws if a database is damaged or has invalid to-dos. */
export function checkIntegrity(database: Database): void {
  const [found] = findStructuralDamage(database);
  if (found !== undefined) throw new DamageError(found);
  assertValidTodos(database);
  if (matchesStoredDigest(database, computeDigest(database)) === false) throw contentsDiffer();
}

/** Migrates the copy of a backup to the current format. */
function migrateCopy(part: string): Omit<BackupSummary, "bytes"> {
  const database = openCopy(part);
  try {
    assertOwnSchema(database);
    if (assertKnownFormat(database) === 0)
      throw new Error("it is not a store of this program: name another file");
    migrate(database);
    if (schemaOf(database) !== currentSchema())
      throw new Error("it is not a store of this program: name another file");
    checkIntegrity(database);
    resetEpoch(database);
    return summaryOf(database);
  } finally {
    database.close();
  }
}

function schemaOf(database: Database): string {
  const schema = database.query<{ sql: string | null }, []>("SELECT sql FROM sqlite_schema ORDER BY name");
  return schema
    .all()
    .map(({ sql }) => sql)
    .join("\n");
}

function currentSchema(): string {
  const database = new Database(":memory:", { safeIntegers: true });
  try {
    migrate(database);
    return schemaOf(database);
  } finally {
    database.close();
  }
}

function assertBackupFile(file: string): void {
  try {
    if (!statSync(file).isFile()) throw new Error("it is not a file");
  } catch (cause) {
    throw new PreconditionError(`${file}: ${describeFsError(cause)}`, { cause });
  }
  if (hasWal(file)) {
    throw new PreconditionError(
      `${file}-wal has writes, because a server uses the store or has crashed: run todo backup on that store`,
    );
  }
}

/** Throws if the path has a store that is not empty, or another program's database. */
function assertEmpty(path: string): void {
  if (!existsSync(path)) return;
  const isEmpty = openOrRefuse(path, () => {
    const database = connect(path);
    try {
      return isEmptyDatabase(database);
    } finally {
      database.close();
    }
  });
  if (!isEmpty) throw new PreconditionError(`${path} already exists and is not empty: move it away first`);
}

function isEmptyDatabase(database: Database): boolean {
  const tables = database
    .query<{ name: string }, []>("SELECT name FROM sqlite_schema WHERE type = 'table'")
    .all();
  if (tables.length === 0) return true;
  if (storeRow(database).last_id > 0n) return false;
  return tables.every(
    ({ name }) => name === "store" || database.query(`SELECT 1 FROM "${name}"`).get() === null,
  );
}
