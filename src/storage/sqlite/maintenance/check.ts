import type { Database } from "bun:sqlite";
import { errorMessage } from "../../../error-message.ts";
import { type CheckResult, PreconditionError } from "../../maintenance.ts";
import { computeDigest, countInvalidTodos, matchesStoredDigest } from "../contents.ts";
import { DamageError, describeDamage, findStructuralDamage, isDamage } from "../damage.ts";
import { checkMarkOf } from "../mark.ts";
import { hasDigest } from "../migrations.ts";
import { UnreadableError, withUnchangedStore } from "./access.ts";

/** Implements `StoreAdmin.check`. Changes nothing, so that a damaged log stays as it is. */
export async function check(path: string): Promise<CheckResult[]> {
  try {
    return await withUnchangedStore(path, (database) => checkDatabase(path, database));
  } catch (error) {
    if (!(error instanceof UnreadableError)) throw error;
    return [{ name: "structure", isSound: false, detail: error.message }];
  }
}

/** Throws a PreconditionError that says what to do unless all checks of an existing store succeed. Changes nothing. */
export async function assertSound(path: string): Promise<void> {
  const damaged = (await check(path)).find(({ isSound }) => !isSound);
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
    if (!hasDigest(database)) return NO_DIGEST;
    const invalid = countInvalidTodos(database);
    if (invalid > 0) return { isSound: false, detail: `${invalid} of its to-dos are invalid` };
    switch (matchesStoredDigest(database, computeDigest(database))) {
      case true:
        return { isSound: true, detail: "ok" };
      case false:
        return { isSound: false, detail: "the to-dos, API keys or counters differ from their digest" };
      case undefined:
        return NO_DIGEST;
    }
  });
}

const NO_DIGEST: Result = {
  isSound: true,
  detail: "not checked, because the store has no digest before a server opens it",
};
