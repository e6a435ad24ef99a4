import { Database } from "bun:sqlite";
import { chmodSync, copyFileSync, existsSync, renameSync, rmSync, statSync } from "node:fs";
import { dirname } from "node:path";
import { type Copied, Refusal } from "../archive.ts";
import { makeWholeFile, removeDatabase, syncToDisk, whyNot } from "../whole-file.ts";
import { besideServer, opening, turn, withoutServer } from "./access.ts";
import { connect, migrate, newEpoch, requireKnownFormat, storeRow } from "./file.ts";

/** A back-up holds the hashes of keys. */
const MODE = 0o600;

/** As `Archive` says. The file is a store of its own: it can also be served as it is. */
export function backup(path: string, file: string, signal: AbortSignal): Promise<Copied> {
  return besideServer(path, (source) =>
    makeWholeFile(file, MODE, async (part) => {
      const before = summaryOf(source);
      source.run("VACUUM INTO ?", [part]);
      const after = summaryOf(source);
      await turn(signal);
      const copy = openCopy(part);
      try {
        const copied = summaryOf(copy);
        requireBetween(before, copied, after);
        beginNewLife(copy);
        requireSound(copy);
        return { ...told(copied), bytes: statSync(part).size };
      } finally {
        copy.close();
      }
    }),
  );
}

/** As `Archive` says. */
export async function restore(path: string, file: string, signal: AbortSignal): Promise<Copied> {
  const part = `${path}.part`;
  requireFile(file);
  if (isSameFile(file, part)) throw new Refusal(`${file} would be written over: rename it first`);
  return withoutServer(path, async () => {
    requireEmpty(path);
    removeDatabase(part);
    try {
      copyFileSync(file, part);
      chmodSync(part, MODE);
      const copied = opening(file, () => adopt(part));
      await turn(signal);
      syncToDisk(part);
      // What a crashed server left beside its empty store would be read into this one.
      for (const suffix of ["-wal", "-shm", "-journal"]) rmSync(path + suffix, { force: true });
      syncToDisk(dirname(path));
      renameSync(part, path);
      syncToDisk(dirname(path));
      return { ...copied, bytes: statSync(path).size };
    } finally {
      removeDatabase(part);
    }
  });
}

/** Whether two names, of which the first leads to a file, lead to the same. */
function isSameFile(file: string, other: string): boolean {
  const [one, another] = [
    statSync(file, { bigint: true }),
    statSync(other, { bigint: true, throwIfNoEntry: false }),
  ];
  return one.dev === another?.dev && one.ino === another.ino;
}

/** What is counted to tell whether a copy is one. */
export interface Summary {
  readonly epoch: string;
  readonly n: bigint;
  readonly lastId: bigint;
  readonly todos: bigint;
  readonly keys: ReadonlySet<string>;
}

function summaryOf(database: Database): Summary {
  return database.transaction(() => {
    const { epoch, n, last_id } = storeRow(database);
    const todos = database.query<{ todos: bigint }, []>("SELECT count(*) AS todos FROM todos").get()?.todos;
    const keys = database.query<{ id: string }, []>("SELECT id FROM keys").all();
    return { epoch, n, lastId: last_id, todos: todos ?? 0n, keys: new Set(keys.map(({ id }) => id)) };
  })();
}

const told = ({ epoch, n, todos }: Summary) => ({
  todos: Number(todos),
  position: { epoch, n: Number(n) },
});

/** Throws unless a copy holds what its source held at some moment between two others, as far as counts can tell. */
export function requireBetween(before: Summary, copy: Summary, after: Summary): void {
  const changes = copy.n - before.n;
  const difference = copy.todos - before.todos;
  const stayed = [...before.keys].filter((id) => after.keys.has(id));
  const isBetween =
    copy.epoch === before.epoch &&
    changes >= 0n &&
    copy.n <= after.n &&
    copy.lastId >= before.lastId &&
    copy.lastId <= after.lastId &&
    (difference < 0n ? -difference : difference) <= changes &&
    stayed.every((id) => copy.keys.has(id));
  if (!isBetween) throw new Error("the copy does not hold what the store held, and was thrown away");
}

/** Opens a database that nobody else knows of; all that is written is in its one file, or an error is thrown. */
function openCopy(part: string): Database {
  const database = new Database(part, { safeIntegers: true });
  database.run("PRAGMA journal_mode = DELETE");
  return database;
}

/** No position of the store that it was copied from is one of the copy's, and no event of it is told. */
function beginNewLife(copy: Database): void {
  // Events hold the titles of to-dos deleted since.
  copy.run("PRAGMA secure_delete = ON");
  copy.transaction(() => {
    copy.run("DELETE FROM events");
    copy.run("UPDATE store SET epoch = ?", [newEpoch()]);
  })();
}

/** Throws when a database is damaged, or holds what no store of ours can. */
function requireSound(database: Database): void {
  const found = database.query<{ integrity_check: string }, []>("PRAGMA integrity_check").get();
  if (found?.integrity_check !== "ok") {
    throw new Error(`it is damaged: ${found?.integrity_check.replace(/\s+/g, " ")}`);
  }
  const wrong = database
    .query<{ wrong: bigint }, [bigint]>(
      `SELECT count(*) AS wrong FROM todos
       WHERE id NOT BETWEEN 1 AND ? OR NOT json_valid(title) OR title NOT LIKE '"%' OR done NOT IN (0, 1)`,
    )
    .get(storeRow(database).last_id)?.wrong;
  if (wrong !== 0n) throw new Error(`it is damaged: ${wrong} of its to-dos cannot be`);
}

/** Makes a copy of a back-up, be it of an older format, one of today's stores. */
function adopt(part: string): Omit<Copied, "bytes"> {
  const database = openCopy(part);
  try {
    if (requireKnownFormat(database) === 0) throw new Error("it is no store of this program");
    migrate(database);
    if (schemaOf(database) !== todaysSchema()) throw new Error("it is no store of this program");
    beginNewLife(database);
    requireSound(database);
    return told(summaryOf(database));
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

function todaysSchema(): string {
  const database = new Database(":memory:", { safeIntegers: true });
  try {
    migrate(database);
    return schemaOf(database);
  } finally {
    database.close();
  }
}

function requireFile(file: string): void {
  try {
    if (!statSync(file).isFile()) throw new Error("it is no file");
  } catch (cause) {
    throw new Refusal(`${file}: ${whyNot(cause)}`, { cause });
  }
  if (hasLog(file)) {
    throw new Refusal(`${file} is a store in use, or was when its server crashed: copy it with todo backup`);
  }
}

/** Whether the latest writes of a store are not in its file yet, but in the log beside it. */
function hasLog(path: string): boolean {
  return (statSync(`${path}-wal`, { throwIfNoEntry: false })?.size ?? 0) > 0;
}

/** Throws when there is a store that holds anything, or another's database. */
function requireEmpty(path: string): void {
  if (!existsSync(path)) {
    if (!hasLog(path)) return;
    throw new Refusal(
      `${path}-wal holds writes of a store that was there: move it to where that store is now`,
    );
  }
  const isEmpty = opening(path, () => {
    const database = connect(path);
    try {
      return hasNothing(database);
    } finally {
      database.close();
    }
  });
  if (!isEmpty) throw new Refusal(`${path} is there already and not empty: move it away first`);
}

function hasNothing(database: Database): boolean {
  const tables = database
    .query<{ name: string }, []>("SELECT name FROM sqlite_schema WHERE type = 'table'")
    .all();
  if (tables.length === 0) return true;
  if (storeRow(database).last_id > 0n) return false;
  return tables.every(
    ({ name }) => name === "store" || database.query(`SELECT 1 FROM "${name}"`).get() === null,
  );
}
