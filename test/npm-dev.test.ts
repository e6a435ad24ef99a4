import { expect, test } from "bun:test";
import { appendFile } from "node:fs/promises";
import { join } from "node:path";
import { run } from "./command.ts";
import { copyRepository } from "./patched-copy.ts";
import { temporaryFolder } from "./temporary.ts";
import { until } from "./until.ts";

const folder = temporaryFolder();

test("npm run dev restarts the server when a source file changes", async () => {
  // A copy, because other tests run from the real sources at the same time.
  await copyRepository(folder);
  await using server = run(["npm", "run", "-s", "--prefix", folder, "dev", "--", "--port", "0"]);
  const urls = (): readonly string[] => server.stdout().match(/"url":"[^"]+"/g) ?? [];
  await server.url;
  expect(urls()).toHaveLength(1);
  await appendFile(join(folder, "src/http/service.ts"), "// changed\n");
  await until(() => urls().length === 2, "the server restarts");
  const url = /"url":"([^"]+)"/.exec(urls()[1] ?? "")?.[1];
  const { status } = await fetch(`${url}/livez`);
  expect(status).toBe(200);
  // SIGKILL would end npm alone and leave the server behind.
  server.kill("SIGTERM");
  await server.exited;
});
