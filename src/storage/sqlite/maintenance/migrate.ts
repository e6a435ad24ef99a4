import { existsSync } from "node:fs";
import { type MigrationSummary, PreconditionError } from "../../maintenance.ts";
import { connect, connectShared } from "../connection.ts";
import { assertKnownFormat } from "../migrations.ts";
import { openOrRefuse } from "./access.ts";

/** Implements `Maintenance.migrate`. */
export async function migrateFile(path: string): Promise<MigrationSummary> {
  if (!existsSync(path)) throw new PreconditionError(`${path} does not exist: check the path of the store`);
  const versionOf = (open: typeof connect): number =>
    openOrRefuse(path, () => {
      const database = open(path);
      try {
        return assertKnownFormat(database);
      } finally {
        database.close();
      }
    });
  return { from: versionOf(connect), to: versionOf(connectShared) };
}
