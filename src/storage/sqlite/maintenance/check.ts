import type { Database } from "bun:sqlite";
import { errorMessage } from "../../../error-message.ts";
import { type CheckResult, PreconditionError } from "../../maintenance.ts";
import { DEFAULTS } from "../../store.ts";
import { assertValidTodos, computeDigest, matchesStoredDigest, readEvents } from "../contents.ts";
import { DamageError, describeDamage, findStructuralDamage, isDamage } from "../damage.ts";
import { checkMarkOf } from "../mark.ts";
import { assertKnownFormat } from "../migrations.ts";
import { storeRow } from "../store-row.ts";
import { UnreadableError, withUnchangedStore } from "./access.ts";

/** Implements `StoreAdmin.check`. Changes nothing, so that a damaged log stays as it is. */
export async function check(path: string): Promise<CheckResult[]> {
  const results = await checkUnlessEmpty(path);
  if (results.length > 0) return results;
  return [{ name: "structure", isSound: false, detail: "it is empty: restore a backup with todo restore" }];
}

/** Returns no results for an empty store, which a server fills when it starts. */
async function checkUnlessEmpty(path: string): Promise<CheckResult[]> {
  try {
    return await withUnchangedStore(path, (database) =>
      assertKnownFormat(database) === 0 ? [] : checkDatabase(path, database),
    );
  } catch (error) {
    if (!(error instanceof UnreadableError)) throw error;
    return [{ name: "structure", isSound: false, detail: error.message }];
  }
}

/** Throws a PreconditionError that says what to do unless all checks of an existing store succeed, or it is empty. Changes nothing. */
export async function assertSound(path: string): Promise<void> {
  const damaged = (await checkUnlessEmpty(path)).find(({ isSound }) => !isSound);
  if (damaged !== undefined)
    throw new PreconditionError(`${path}: ${describeDamage(new DamageError(damaged.detail))}`);
}

/** Checks an open store. Starts a transaction, which ends when the connection closes. */
export function checkDatabase(path: string, database: Database): CheckResult[] {
  const mark = checkMarkSafely(path, database);
  // The transaction is a snapshot: a server may write meanwhile.
  database.run("BEGIN");
  return [
    { name: "structure", ...checkStructure(database) },
    { name: "contents", ...checkContents(database) },
    { name: "mark", ...mark },
  ];
}

type Result = Omit<CheckResult, "name">;

function checkMarkSafely(path: string, database: Database): Result {
  return unlessDamaged(() => {
    const { loss, problem } = checkMarkOf(path, database);
    if (loss !== undefined) return { isSound: false, detail: loss };
    return { isSound: true, detail: problem === undefined ? "ok" : `not checked, because ${problem}` };
  });
}

function unlessDamaged(act: () => Result): Result {
  try {
    return act();
  } catch (error) {
    if (isDamage(error)) return { isSound: false, detail: errorMessage(error) };
    throw error;
  }
}

function checkStructure(database: Database): Result {
  const [first, ...others] = findStructuralDamage(database);
  if (first === undefined) return { isSound: true, detail: "ok" };
  return { isSound: false, detail: others.length === 0 ? first : `${first} (and ${others.length} more)` };
}

function checkContents(database: Database): Result {
  return unlessDamaged(() => {
    assertValidTodos(database);
    switch (matchesStoredDigest(database, computeDigest(database))) {
      case true:
        return checkEvents(database);
      case false:
        return { isSound: false, detail: "the to-dos, API keys or counters differ from their digest" };
      case undefined:
        return NO_DIGEST;
    }
  });
}

/** A server starts without damaged events, so they are no damage of the store. */
function checkEvents(database: Database): Result {
  const { epoch, n } = storeRow(database);
  try {
    readEvents(database, { epoch, sequence: Number(n) }, DEFAULTS.maxEvents);
    return { isSound: true, detail: "ok" };
  } catch (error) {
    if (!(error instanceof DamageError)) throw error;
    const detail = `ok, but ${error.message}: the server deletes all stored events when it starts`;
    return { isSound: true, detail };
  }
}

const NO_DIGEST: Result = {
  isSound: true,
  detail: "not checked, because the store has no digest before a server opens it",
};
