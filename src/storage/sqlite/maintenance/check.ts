import type { Database } from "bun:sqlite";
import { accessSync, constants, existsSync, statSync } from "node:fs";
import { dirname } from "node:path";
import { describeFsError, errorMessage } from "../../../error-message.ts";
import { type CheckResult, type OnProgress, PreconditionError, type TaskOptions } from "../../maintenance.ts";
import { DEFAULTS } from "../../store.ts";
import { assertUndamaged, findStructuralDamage, visitor } from "../contents.ts";
import { describeDamage } from "../diagnosis.ts";
import { DamageError, isDamage, whyNotWritable } from "../errors.ts";
import { isLocked } from "../lock.ts";
import { assertNotBehindMark, checkMark, markPath } from "../mark.ts";
import { assertKnownFormat } from "../migrations.ts";
import { readEvents, storedIdempotencyRecords } from "../rows.ts";
import { storeRow } from "../store-row.ts";
import { describeWaysOut } from "../ways-out.ts";
import { openOrRefuse, UnreadableError, withUnchangedStore } from "./access.ts";

/** A server that starts deletes damaged events and idempotency keys, so they do not make a store unusable. */
const HISTORY = "history";

/** Implements `StoreAdmin.check`. Changes nothing, so that a damaged WAL stays as it is. */
export async function check(path: string, task?: TaskOptions): Promise<CheckResult[]> {
  const results = await checkUnlessEmpty(path, task);
  if (results.length > 0) return results;
  return [{ name: "structure", isSound: false, detail: `it is empty: ${describeWaysOut(path)}` }];
}

/** Returns no results for an empty store, which a server fills when it starts. */
async function checkUnlessEmpty(path: string, task?: TaskOptions): Promise<CheckResult[]> {
  try {
    return await withUnchangedStore(path, (database) =>
      assertKnownFormat(database) === 0 ? [] : checkDatabase(path, database, task?.onProgress),
    );
  } catch (error) {
    if (!(error instanceof UnreadableError)) throw error;
    return [{ name: "structure", isSound: false, detail: error.message }];
  }
}

/** Throws a PreconditionError that says what to do unless all checks of an existing store succeed, or it is empty. Changes nothing. */
export async function assertSound(path: string): Promise<void> {
  const damaged = (await checkUnlessEmpty(path)).find(({ name, isSound }) => !isSound && name !== HISTORY);
  if (damaged !== undefined)
    throw new PreconditionError(`${path}: ${describeDamage(path, new DamageError(damaged.detail))}`);
}

/** Starts a transaction, which ends when the connection closes. */
function checkDatabase(path: string, database: Database, onProgress?: OnProgress): CheckResult[] {
  // A backup has no mark.
  const mark = existsSync(markPath(path)) ? [runCheck("mark", () => compareWithMark(path))] : [];
  // The transaction is a snapshot: a server may write meanwhile.
  database.run("BEGIN");
  const structure = runCheck("structure", () => checkStructure(database));
  const contents = runCheck("contents", () => {
    assertUndamaged(database, visitor(database, "checking", onProgress));
    return "ok";
  });
  const history = runCheck(HISTORY, () => checkHistory(database));
  return [structure, contents, history, ...mark];
}

/** @param check returns the detail of a sound result, or throws a DamageError */
function runCheck(name: string, check: () => string): CheckResult {
  try {
    return { name, isSound: true, detail: check() };
  } catch (error) {
    if (isDamage(error)) return { name, isSound: false, detail: errorMessage(error) };
    throw error;
  }
}

function compareWithMark(path: string): string {
  const { loss, problem } = checkMark(path);
  if (loss !== undefined) throw new DamageError(loss);
  return problem === undefined ? "ok" : `not checked, because ${problem}`;
}

function checkStructure(database: Database): string {
  const [first, ...others] = findStructuralDamage(database);
  if (first === undefined) return "ok";
  throw new DamageError(others.length === 0 ? first : `${first} (and ${others.length} more)`);
}

/** Checks the events and the idempotency keys. */
function checkHistory(database: Database): string {
  const { epoch, sequence } = storeRow(database);
  readEvents(database, { epoch, sequence: Number(sequence) }, DEFAULTS.maxEvents);
  let damaged = 0;
  for (const _ of storedIdempotencyRecords(database, () => damaged++));
  if (damaged > 0) throw new DamageError(`${damaged} idempotency keys are damaged`);
  return "ok";
}

export interface SqliteProbe {
  /** The wall-clock time of the last change in milliseconds; `undefined` if the store does not exist. */
  readonly lastChange: number | undefined;
  /** The id of the store; `undefined` if the store does not exist or is empty. */
  readonly id: string | undefined;
  /** Whether another process has locked the store. */
  readonly isLocked: boolean;
}

/**
 * Checks that a server can open a store and write it, or can create it, and changes nothing. Throws an Error with the
 * reason if it cannot. It does not throw because another process has the lock.
 */
export async function probeSqlite(path: string): Promise<SqliteProbe> {
  openOrRefuse(path, () => assertNotBehindMark(path));
  if (!existsSync(path)) {
    assertWritableFolder(dirname(path));
    return { lastChange: undefined, id: undefined, isLocked: false };
  }
  const reason = whyNotWritable(path);
  if (reason !== undefined) throw new Error(`${path}: ${reason}`);
  await assertSound(path);
  const id = await withUnchangedStore(path, (database) =>
    assertKnownFormat(database) === 0 ? undefined : storeRow(database).id,
  );
  const changes = [path, `${path}-wal`].map(
    (file) => statSync(file, { throwIfNoEntry: false })?.mtimeMs ?? 0,
  );
  const locked = openOrRefuse(path, () => isLocked(path));
  return { lastChange: Math.max(...changes), id, isLocked: locked };
}

function assertWritableFolder(folder: string): void {
  try {
    accessSync(folder, constants.W_OK | constants.X_OK);
  } catch (cause) {
    throw new Error(`${folder}: ${describeFsError(cause)}`, { cause });
  }
}
