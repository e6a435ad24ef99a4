import type { Database } from "bun:sqlite";
import { chmodSync, copyFileSync, existsSync, realpathSync, renameSync, rmSync, statSync } from "node:fs";
import { dirname } from "node:path";
import { isExpired, isListed } from "../../../credential/key.ts";
import { describeFsError, getErrno } from "../../../error-message.ts";
import { WorkerThread } from "../../../worker-thread.ts";
import { createFileAtomic, fsyncFile, fsyncFolder } from "../../atomic-file.ts";
import {
  type BackupSummary,
  PreconditionError,
  type RestoreSummary,
  type TaskOptions,
  yieldToEventLoop,
} from "../../maintenance.ts";
import { type KeyRow, toKey } from "../../records/key-row.ts";
import { assertIntact, countRows, storeChecksum } from "../contents.ts";
import { isDamage } from "../errors.ts";
import { createPrivate, hasOnlyWal, hasWal, PRIVATE_MODE, removeDatabase } from "../files.ts";
import { beginMark, markPath, removeMark } from "../mark.ts";
import { assertKnownFormat, migrate, randomId, UnknownFormatError } from "../migrations.ts";
import { openDatabase } from "../open.ts";
import { storeRow } from "../store-row.ts";
import { lockOrRefuse, openOrRefuse, withSharedAccess } from "./access.ts";
import { copyStore } from "./copy.ts";
import { importInto } from "./transfer.ts";

/** Implements `StoreAdmin.backup`. The file is a complete store; a server can open it directly. */
export function backup(path: string, file: string, task: TaskOptions): Promise<BackupSummary> {
  return withSharedAccess(path, () =>
    createFileAtomic(file, PRIVATE_MODE, async (part) => {
      using copy = await copyStore(path, part, task);
      const { id: _id, ...copied } = summarize(copy);
      makeRestorable(copy, task);
      return { ...copied, bytes: statSync(part).size };
    }),
  );
}

/** Asks a thread for a backup of the store at `path`. */
export interface BackupRequest {
  readonly path: string;
  readonly file: string;
}

/** Does `backup` in a thread, so that the server responds meanwhile. Rejects with the reason of a failure. */
export async function backupInBackground(path: string, file: string): Promise<BackupSummary> {
  const thread = new WorkerThread<BackupRequest, BackupSummary>(
    new URL("./backup.worker.ts", import.meta.url),
  );
  try {
    return await thread.request({ path, file });
  } finally {
    thread.terminate();
  }
}

/** Implements `StoreAdmin.restore`. */
export async function restore(path: string, file: string, task: TaskOptions): Promise<RestoreSummary> {
  const part = `${path}.part`;
  assertBackupFile(file);
  if (realpathSync(file) === part)
    throw new PreconditionError(`restore would overwrite ${file}: rename it first`);
  using _ = lockOrRefuse(path);
  openOrRefuse(path, () => assertNotOfAnotherProgram(path));
  removeDatabase(part);
  try {
    createPrivate(part);
    // An export, such as a rescue file, is text and not a database.
    if ((await Bun.file(file).slice(0, 1).text()) === "{") await importExport(file, part, task);
    else openOrRefuse(file, () => copyBackup(file, part, task));
    const { id, ...copied } = summarizeFile(part);
    await yieldToEventLoop(task.signal);
    fsyncFile(part);
    const movedTo = existsSync(path) || hasWal(path) ? moveAside(path) : undefined;
    // SQLite would replay the WAL that a crashed server left beside its empty store.
    for (const suffix of ["-wal", "-shm", "-journal"]) rmSync(path + suffix, { force: true });
    removeMark(path);
    renameSync(part, path);
    fsyncFolder(dirname(path));
    beginMark(path, id);
    return { ...copied, bytes: statSync(path).size, movedTo };
  } finally {
    removeDatabase(part);
  }
}

/** Throws for the intact database of another program. An unreadable file may have been a store. */
function assertNotOfAnotherProgram(path: string): void {
  if (!existsSync(path) || hasOnlyWal(path)) return;
  try {
    openDatabase(path, "readOnly").close();
  } catch (error) {
    const isUnreadable = isDamage(error) || getErrno(error) === "SQLITE_NOTADB";
    if (!isUnreadable && !(error instanceof UnknownFormatError)) throw error;
  }
}

/** Copies a backup to a new file, migrates the copy, and makes it a new store. */
function copyBackup(file: string, part: string, task: TaskOptions): void {
  copyFileSync(file, part);
  chmodSync(part, PRIVATE_MODE);
  migrateCopy(part, task);
  // A server that sets WAL itself and is killed meanwhile would leave a rollback journal, which hides the position.
  openDatabase(part, "server").close();
}

function migrateCopy(part: string, task: TaskOptions): void {
  using database = openDatabase(part, "exclusive");
  if (assertKnownFormat(database) === 0)
    throw new Error("it is not a store of this program: name another file");
  migrate(database);
  assertNoTrigger(database);
  makeRestorable(database, task);
}

/** Makes a copy another store. Throws unless the copy is a sound store. */
function makeRestorable(copy: Database, { onProgress }: TaskOptions): void {
  assertIntact(copy, onProgress);
  resetIdentity(copy);
}

/** Imports an export with its API keys to a new file. */
const importExport = (file: string, part: string, task: TaskOptions): Promise<unknown> =>
  importInto(part, randomId(), Bun.file(file).stream(), Number.POSITIVE_INFINITY, {
    ...task,
    keys: "include",
  });

/** Renames the files of a store, so that a restore can take its place. Returns the new path. */
function moveAside(path: string): string {
  const aside = `${path}.${new Date().toISOString().replaceAll(/[-:.]/g, "")}`;
  // The mark comes last: without it, a server would start on a store that lost changes.
  if (hasWal(path)) renameSync(`${path}-wal`, `${aside}-wal`);
  if (existsSync(path)) renameSync(path, aside);
  fsyncFolder(dirname(path));
  if (existsSync(markPath(path))) renameSync(markPath(path), markPath(aside));
  return aside;
}

function summarizeFile(path: string) {
  using database = openDatabase(path, "readOnly");
  return summarize(database);
}

/** Returns the contents of a copy, and the id of the store. */
function summarize(database: Database) {
  const { id, epoch, sequence } = storeRow(database);
  const now = Date.now();
  const valid = database
    .query<KeyRow, []>("SELECT * FROM keys")
    .all()
    .map(toKey)
    .filter((key) => isListed(key, now) && !isExpired(key, now));
  const todos = countRows(database, "todos");
  return { id, todos, keys: valid.length, position: { epoch, sequence: Number(sequence) } };
}

/** Makes the copy a new store without events, so that it knows no old position. */
function resetIdentity(copy: Database): void {
  // Events contain the titles of deleted to-dos.
  copy.run("PRAGMA secure_delete = ON");
  copy.transaction(() => {
    copy.run("DELETE FROM events");
    copy.run("UPDATE store SET id = ?, epoch = ?, transactions = 0", [randomId(), randomId()]);
    storeChecksum(copy);
  })();
}

/** Throws if a database has a trigger. Accepts other tables and indexes, such as those of ANALYZE. */
function assertNoTrigger(database: Database): void {
  const sql = "SELECT name FROM sqlite_schema WHERE type = 'trigger'";
  const trigger = database.query<{ name: string }, []>(sql).get();
  if (trigger === null) return;
  throw new Error(
    `it has the trigger ${JSON.stringify(trigger.name)} of another program: remove it with sqlite3, because it can change to-dos`,
  );
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
