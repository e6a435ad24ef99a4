import type { MigrationSummary } from "../../maintenance.ts";
import { connect, connectShared } from "../connection.ts";
import { assertKnownFormat } from "../migrations.ts";
import { openOrRefuse, requireStore } from "./access.ts";

/** Implements `Maintenance.migrate`. */
export async function migrateFile(path: string): Promise<MigrationSummary> {
  requireStore(path);
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
