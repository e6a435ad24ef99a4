import { existsSync } from "node:fs";
import { type LossSummary, PreconditionError } from "../../maintenance.ts";
import { assertIntact, storeChecksum } from "../contents.ts";
import { beginMark, checkMark, removeMark } from "../mark.ts";
import { randomId } from "../migrations.ts";
import { openDatabase } from "../open.ts";
import { storeRow } from "../store-row.ts";
import { lockOrRefuse, openOrRefuse } from "./access.ts";
import { assertSound } from "./check.ts";

/** Implements `StoreAdmin.acceptLoss`. */
export async function acceptLoss(path: string): Promise<LossSummary> {
  using _ = lockOrRefuse(path);
  const loss = await findLoss(path);
  using database = openOrRefuse(path, () => openDatabase(path, "server"));
  openOrRefuse(path, () => assertIntact(database));
  const id = randomId();
  database.transaction(() => {
    database.run("UPDATE store SET id = ?, transactions = 0", [id]);
    storeChecksum(database);
  })();
  // The old mark reports the loss until the new id is on disk.
  removeMark(path);
  beginMark(path, id);
  const { epoch, sequence } = storeRow(database);
  return { loss, position: { epoch, sequence: Number(sequence) } };
}

async function findLoss(path: string): Promise<string> {
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
