import { existsSync } from "node:fs";
import { dirname } from "node:path";
import { fsyncPath } from "../../atomic-file.ts";
import { type LossSummary, PreconditionError } from "../../maintenance.ts";
import { connect } from "../connection.ts";
import { computeDigest, storeDigest } from "../contents.ts";
import { beginMark, checkMark, removeMark } from "../mark.ts";
import { migrate, newEpoch } from "../migrations.ts";
import { storeRow } from "../store-row.ts";
import { openOrRefuse, withExclusiveAccess } from "./access.ts";
import { checkIntegrity } from "./backup.ts";
import { assertSound } from "./check.ts";

/** Implements `StoreAdmin.acceptLoss`. */
export async function acceptLoss(path: string): Promise<LossSummary> {
  await requireLoss(path);
  return withExclusiveAccess(path, async () => {
    const loss = await requireLoss(path);
    const database = openOrRefuse(path, () => connect(path));
    try {
      openOrRefuse(path, () => {
        migrate(database);
        checkIntegrity(database);
      });
      const epoch = newEpoch();
      database.transaction(() => {
        database.run("UPDATE store SET epoch = ?, transactions = 0", [epoch]);
        storeDigest(database, computeDigest(database));
      })();
      // The old mark reports the loss until the new epoch is on disk.
      removeMark(path);
      fsyncPath(dirname(path));
      beginMark(path, epoch);
      const { n } = storeRow(database);
      return { loss, position: { epoch, sequence: Number(n) } };
    } finally {
      database.close();
    }
  });
}

async function requireLoss(path: string): Promise<string> {
  const { loss, problem } = openOrRefuse(path, () => checkMark(path));
  if (loss !== undefined) return loss;
  if (!existsSync(path)) throw new PreconditionError(`${path} does not exist: check the path of the store`);
  await assertSound(path);
  throw new PreconditionError(
    problem === undefined
      ? `${path} has all changes that its high-water mark counts: start the server`
      : `${problem}: the server starts without it`,
  );
}
