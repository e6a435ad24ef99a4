/** Backup, restore, export, import and check of a file. Each command is a process of its own. */
import type { Database } from "bun:sqlite";
import {
  chmodSync,
  copyFileSync,
  existsSync,
  linkSync,
  realpathSync,
  renameSync,
  rmSync,
  statSync,
} from "node:fs";
import { dirname } from "node:path";
import { isExpired, isListed } from "../../credential/key.ts";
import { describeFsError, getErrno } from "../../error-message.ts";
import { encodeTodo } from "../../todo.ts";
import { WorkerThread } from "../../worker-thread.ts";
import { createFileAtomic, fsyncFile, fsyncFolder, PRIVATE_MODE } from "../atomic-file.ts";
import {
  type BackupSummary,
  type CheckResult,
  hasKeys,
  type Operation,
  PreconditionError,
  type TaskOptions,
  type TransferOptions,
  type TransferSummary,
  UsedStoreError,
  yieldToEventLoop,
} from "../maintenance.ts";
import { type ExportContents, writeExport } from "../ndjson.ts";
import { NdjsonReader } from "../ndjson-reader.ts";
import { DEFAULTS } from "../store.ts";
import { Table } from "../table/table.ts";
import {
  assertNothingLeft,
  createDatabase,
  FORMAT,
  ForeignDatabaseError,
  isDamage,
  oneLine,
  openDatabase,
  openError,
} from "./database.ts";
import { readMark, writeMark } from "./file-watch.ts";
import { assertWritable, createPrivate, hasWal, removeDatabase, whyNotWritable } from "./files.ts";
import { openToChange } from "./keys.ts";
import { acquireLock, isLocked } from "./lock.ts";
import * as rows from "./rows.ts";

/**
 * Runs a function on an existing store, which a server may be using. Changes nothing: a connection that writes would move a damaged
 * WAL to the database when it closes.
 * @param use gets a function that compares the mark: it throws, or returns a warning
 */
async function withStore<T>(
  path: string,
  use: (database: Database, compareMark: () => string | undefined) => T | Promise<T>,
): Promise<T> {
  assertNothingLeft(path);
  if (!existsSync(path)) throw new PreconditionError(`${path} does not exist: check the path of the store`);
  const hadWal = existsSync(`${path}-wal`);
  const compareMark = readMark(path);
  let result: T;
  try {
    using database = openDatabase(path, "read");
    result = await use(database, () => compareMark(rows.readCounters(database)));
  } catch (cause) {
    // Other errors are not about the store.
    throw String(getErrno(cause)).startsWith("SQLITE_") ? openError(path, cause) : cause;
  }
  if (hadWal) return result;
  // SQLite removes the empty WAL of a store that was closed before, unless it may not write the store.
  if (whyNotWritable(path) === undefined) openDatabase(path, "write").close();
  else if (!hasWal(path) && !isLocked(path))
    for (const suffix of ["-wal", "-shm"]) rmSync(path + suffix, { force: true });
  return result;
}

/** Implements `StoreAdmin.backup`. The file is a complete store; a server can open it directly. */
export const backup: Operation<"backup"> = (path, file, { signal }) =>
  withStore(path, (database, compareMark) =>
    createFileAtomic(file, PRIVATE_MODE, (part) =>
      copyInto(part, database, compareMark, signal).catch((error) => {
        // A full disk leaves a journal.
        removeDatabase(part);
        throw error;
      }),
    ),
  );

async function copyInto(part: string, database: Database, compareMark: () => unknown, signal: AbortSignal) {
  compareMark();
  await yieldToEventLoop(signal);
  database.query("VACUUM INTO ?").run(part);
  await yieldToEventLoop(signal);
  using copy = openDatabase(part, "write");
  for (const { type, name } of foreignCode(copy)) copy.run(`DROP ${type} "${name.replaceAll('"', '""')}"`);
  rows.assertIntact(copy);
  const summary = summarize(copy);
  makeNew(copy);
  copy.run("PRAGMA journal_mode = DELETE");
  return { ...summary, bytes: statSync(part).size };
}

/** What a thread backs up, and the new file. */
export type BackupRequest = readonly [path: string, file: string];

/** Backs up in a thread, so that the server responds meanwhile. Rejects with the reason of a failure. */
export async function backupInBackground(path: string, file: string): Promise<BackupSummary> {
  const thread = new WorkerThread<BackupRequest, BackupSummary>(
    new URL("./backup.worker.ts", import.meta.url),
  );
  try {
    return await thread.request([path, file]);
  } finally {
    thread.terminate();
  }
}

/** Returns the triggers and views of other programs, which can change what is written or read. */
const foreignCode = (database: Database) =>
  database
    .query<{ type: "trigger" | "view"; name: string }, []>(
      "SELECT type, name FROM sqlite_schema WHERE type IN ('trigger', 'view')",
    )
    .all();

/** Makes a copy another store without events, which contain the titles of deleted to-dos. So it knows no earlier position. */
function makeNew(copy: Database): void {
  copy.run("PRAGMA secure_delete = ON");
  copy.transaction(() => {
    copy.run("DELETE FROM events");
    rows.putCounters(copy, {
      ...rows.readCounters(copy),
      id: rows.randomId(),
      epoch: rows.randomId(),
      keys_used: rows.UNUSED,
    });
  })();
}

function summarize(database: Database): Omit<BackupSummary, "bytes"> {
  const { epoch, sequence } = rows.readCounters(database);
  const now = Date.now();
  const keys = rows.readKeys(database).filter((key) => isListed(key, now) && !isExpired(key, now)).length;
  return { todos: rows.countTodos(database), keys, position: { epoch, sequence: Number(sequence) } };
}

/** Implements `StoreAdmin.restore`. */
export const restore: Operation<"restore"> = async (path, file, task) => {
  const part = `${path}.part`;
  assertBackupFile(file);
  if (realpathSync(file) === part)
    throw new PreconditionError(`restore would overwrite ${file}: rename it first`);
  using _ = acquireLock(path);
  assertNotForeign(path);
  removeDatabase(part);
  try {
    // An export, such as a rescue file, is text and not a database. It may begin with a byte order mark and blank lines.
    const isExport = (await Bun.file(file).slice(0, 100).text()).trimStart().startsWith("{");
    const { counters, ...summary } = isExport
      ? await restoreExport(file, part, task)
      : restoreBackup(file, part);
    await yieldToEventLoop(task.signal);
    fsyncFile(part);
    const movedTo = replaceStore(path, part);
    writeMark(path, counters);
    return { ...summary, bytes: statSync(path).size, movedTo };
  } finally {
    removeDatabase(part);
  }
};

function assertBackupFile(file: string): void {
  try {
    if (!statSync(file).isFile()) throw new Error("it is not a file");
  } catch (cause) {
    throw new PreconditionError(`${file}: ${describeFsError(cause)}`, { cause });
  }
  if (hasWal(file))
    throw new PreconditionError(
      `${file}-wal has writes, because a server uses the store or has crashed: run todo backup on that store`,
    );
}

/** Throws for the intact database of another program. An unreadable file may have been a store. */
function assertNotForeign(path: string): void {
  try {
    if (existsSync(path)) openDatabase(path, "read").close();
  } catch (error) {
    if (error instanceof ForeignDatabaseError) throw error;
  }
}

async function restoreExport(file: string, part: string, task: TaskOptions) {
  createDatabase(part);
  using database = openDatabase(part, "write");
  const source = Bun.file(file).stream();
  await importInto(database, source, Number.POSITIVE_INFINITY, { ...task, keys: "include" });
  return { ...summarize(database), counters: rows.readCounters(database), warning: undefined };
}

/** The warning of its result says why the file may lack changes. */
function restoreBackup(file: string, part: string) {
  const compareMark = readMark(file);
  createPrivate(part);
  copyFileSync(file, part);
  chmodSync(part, PRIVATE_MODE);
  try {
    using copy = openDatabase(part, "write", file);
    const [found] = foreignCode(copy);
    if (found !== undefined)
      throw new PreconditionError(
        `${file}: it has the ${found.type} ${JSON.stringify(found.name)} of another program: remove it with sqlite3, because it can change to-dos`,
      );
    const counters = rows.assertIntact(copy);
    const warning = compareMark(counters);
    makeNew(copy);
    return { ...summarize(copy), counters: rows.readCounters(copy), warning };
  } catch (cause) {
    throw openError(file, cause);
  }
}

/**
 * Gives the files of a store other names, and puts a new database in their place. After a crash at any time, there is the old
 * database or the new one, and the old mark reports one that lacks its WAL. Returns the new path of the old store, if there was one.
 */
function replaceStore(path: string, part: string): string | undefined {
  const aside = `${path}.${new Date().toISOString().replaceAll(/[-:.]/g, "")}`;
  const isThere = existsSync(path) || hasWal(path);
  if (existsSync(path)) nameTwice(path, aside);
  if (hasWal(path)) renameSync(`${path}-wal`, `${aside}-wal`);
  // SQLite would use them with the new database.
  for (const suffix of ["-wal", "-shm", "-journal"]) rmSync(path + suffix, { force: true });
  fsyncFolder(dirname(path));
  renameSync(part, path);
  if (existsSync(`${path}-mark`)) renameSync(`${path}-mark`, `${aside}-mark`);
  fsyncFolder(dirname(path));
  return isThere ? aside : undefined;
}

function nameTwice(path: string, aside: string): void {
  try {
    linkSync(path, aside);
  } catch {
    // Some file systems have no hard links.
    renameSync(path, aside);
  }
}

/**
 * Implements `StoreAdmin.export`. Everything is read first, because a paused reader of the output would keep the WAL from being
 * used again.
 */
export const exportTodos: Operation<"export"> = (path, write, { keys, damaged, ...task }) =>
  withStore(path, async (database, compareMark) => {
    const problems: string[] = [];
    const attempt = <T>(problem: string, read: () => T): T | undefined => {
      try {
        return read();
      } catch (error) {
        if (damaged !== "skip") throw error;
        problems.push(`${problem}: ${oneLine(error)}`);
        return undefined;
      }
    };
    const read = (): ExportContents => {
      const readIntact = database.transaction(() => {
        if (damaged === "skip") rows.assertStructure(database);
        return rows.readContents(database, () => {});
      });
      const intact = attempt("left out what is damaged", () => readIntact.deferred());
      const table = intact?.table ?? new Table();
      const found = intact === undefined ? rows.readIntactTodos(database) : [];
      for (const [id, json] of found) table.append(id, json);
      const stored = intact?.keys ?? attempt("no API key is exported", () => rows.readKeys(database)) ?? [];
      const records = attempt("no idempotency key is exported", () => rows.readRecords(database).records);
      // Last, because a server may add to-dos meanwhile, and no id may be greater than the header's.
      const counters = attempt("ids may be assigned again", () => rows.readCounters(database));
      if (counters !== undefined) attempt("the store may lack changes", compareMark);
      return {
        lastId: counters?.last_id ?? found.at(-1)?.[0] ?? 0n,
        count: table.count,
        todos: table.batches(),
        keys: keys === "include" ? stored : undefined,
        idempotencyRecords: records ?? [],
      };
    };
    // A disk that cannot be read can end a transaction.
    const contents = damaged === "skip" ? read() : database.transaction(read).deferred();
    const summary = await writeExport(contents, write, task);
    return problems.length > 0 ? { ...summary, problems } : summary;
  });

/** Implements `StoreAdmin.import` in one transaction. */
export const importTodos: Operation<"import"> = async (path, source, maxTodos, task) => {
  using _ = acquireLock(path);
  const { database, isNew } = openToChange(path, "create", rows.assertIntact);
  try {
    if (rows.readCounters(database).last_id > 0n)
      throw new UsedStoreError(
        `${path} has contained to-dos: import into a new file, or move this file away first`,
      );
    const summary = await importInto(database, source, maxTodos, task);
    writeMark(path, rows.readCounters(database));
    database.close();
    return summary;
  } catch (error) {
    database.close();
    if (isNew) removeDatabase(path);
    throw error;
  }
};

/** Imports an export into a database without to-dos, in one transaction. Closing the database rolls it back. */
async function importInto(
  database: Database,
  source: AsyncIterable<Uint8Array>,
  maxTodos: number,
  { keys, ...task }: TransferOptions,
): Promise<TransferSummary> {
  database.run("BEGIN IMMEDIATE");
  const counters = rows.readCounters(database);
  const reader = new NdjsonReader({ maxId: rows.MAX_SQLITE_ID, maxTodos, keys });
  const insertTodo = rows.todoInserter(database);
  let sum = Number(counters.checksum);
  for await (const todos of reader.readAll(source, task))
    for (const todo of todos) sum = (sum + insertTodo(todo.id, encodeTodo(todo))) % 2 ** 32;
  const newKeys = [...reader.keys.values()];
  if (newKeys.length > 0 && rows.readKeys(database).length > 0) throw hasKeys();
  for (const key of newKeys) rows.putKey(database, key);
  sum += rows.sumOfKeys(newKeys);
  for (const record of reader.idempotencyRecords.values()) rows.putRecord(database, record);
  const [sequence, checksum] = [BigInt(reader.count), rows.toChecksum(sum)];
  rows.putCounters(database, {
    ...counters,
    epoch: rows.randomId(),
    sequence,
    last_id: reader.lastId,
    checksum,
  });
  database.run("COMMIT");
  return reader.summary;
}

/** There is one format. */
export const migrate: Operation<"migrate"> = (path) => withStore(path, () => ({ from: FORMAT, to: FORMAT }));

/** Implements `StoreAdmin.check`. Changes nothing. */
export async function check(path: string): Promise<CheckResult[]> {
  try {
    return await withStore(path, (database, compareMark) => {
      // A snapshot: a server may write meanwhile.
      const run = database.transaction(() => [
        runCheck("structure", () => void rows.assertStructure(database)),
        runCheck("contents", () => void rows.readIntact(database)),
        runCheck("history", () => void assertHistory(database)),
        runCheck("mark", compareMark),
      ]);
      // A backup has no mark.
      const isBackup = !existsSync(`${path}-mark`);
      return run.deferred().filter(({ name, detail }) => !(isBackup && name === "mark" && detail === "ok"));
    });
  } catch (error) {
    // SQLite can read nothing in the file.
    if (!(error instanceof Error) || !isDamage(error.cause)) throw error;
    return [{ name: "structure", isSound: false, detail: error.message }];
  }
}

/** @param run returns a warning */
function runCheck(name: string, run: () => string | undefined): CheckResult {
  try {
    return { name, isSound: true, detail: run() ?? "ok" };
  } catch (error) {
    if (!isDamage(error) && !(error instanceof PreconditionError)) throw error;
    return { name, isSound: false, detail: oneLine(error) };
  }
}

/** Checks the events and the idempotency keys, without which a server starts. */
function assertHistory(database: Database): void {
  const { damage } = rows.readEvents(database, rows.readCounters(database), DEFAULTS.maxEvents);
  if (damage !== undefined) throw new rows.DamageError(damage);
  const { damaged } = rows.readRecords(database);
  if (damaged.length > 0) throw new rows.DamageError(`${damaged.length} idempotency keys are damaged`);
}

/**
 * Checks that a server can open a store and write it, or can create it, and changes nothing. Throws an Error with the
 * reason if it cannot. Returns the id of the store, which is undefined if it does not exist, and whether another process has locked it.
 */
export async function probeSqlite(path: string) {
  assertWritable(path);
  assertNothingLeft(path);
  if (!existsSync(path)) return { id: undefined, isLocked: false };
  return withStore(path, (database, compareMark) => {
    const { id } = rows.assertIntact(database);
    compareMark();
    return { id, isLocked: isLocked(path) };
  });
}
