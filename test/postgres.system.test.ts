import { expect, test } from "bun:test";
import { join } from "node:path";
import { run } from "./command.ts";
import { startPostgres, whyNoDatabase } from "./postgres.ts";
import { skipFor } from "./skip.ts";

const { TODO_TEST_POSTGRES_BIN: BIN = "" } = process.env;

const whyNot = BIN === "" ? "TODO_TEST_POSTGRES_BIN is not set" : whyNoDatabase;
test.skipIf(skipFor(whyNot))("startPostgres starts the program of TODO_TEST_POSTGRES_BIN", async () => {
  const version = run([join(BIN, "postgres"), "--version"]);
  await version.exited;
  await using postgres = await startPostgres();
  const [row] = await postgres.query<{ server_version: string }>("SHOW server_version");
  expect(version.stdout()).toBe(`postgres (PostgreSQL) ${row?.server_version}\n`);
});
