import type { MigrationSummary } from "../../maintenance.ts";
import { assertNotEmpty, connect, connectShared } from "../connection.ts";
import { assertNotBehindMark } from "../mark.ts";
import { assertKnownFormat } from "../migrations.ts";
import { openOrRefuse, requireStore } from "./access.ts";

/** Implements `StoreAdmin.migrate`. */
export async function migrateFile(path: string): Promise<MigrationSummary> {
  requireStore(path);
  openOrRefuse(path, () => {
    assertNotBehindMark(path);
    assertNotEmpty(path);
  });
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
