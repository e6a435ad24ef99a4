import { expect, test } from "bun:test";
import { existsSync, readFileSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { runTodo } from "./command.ts";
import { expectToConform, unobserved } from "./kit.ts";
import { openDatabases, whyNoDatabase } from "./postgres.ts";

const ROOT = fileURLToPath(new URL("..", import.meta.url));
const engines = ["memory:", "sqlite:", ...(whyNoDatabase === undefined ? ["postgres:"] : [])];

/** Each engine, and the one in memory with its metrics too. */
const ways = [...engines, "memory: --metrics-port=0"];

test.each(ways)("conformance kit passes the command on %s", async (way) => {
  const [engine = "", ...options] = way.split(" ");
  const folder = await mkdtemp(join(tmpdir(), "todo-conformance-"));
  await using databases = engine === "postgres:" ? await openDatabases() : undefined;
  const file = engine === "sqlite:" ? join(folder, "todos.db") : "";
  const store = (await databases?.newDatabase()) ?? engine + file;
  try {
    await expectToConform((args, variables) => runTodo([...args, ...options], variables), store);
  } finally {
    await rm(folder, { recursive: true });
  }
});

test.each(unobserved)("conformance rule $id has the test it names", ({ notObservable }) => {
  const [, path = "", name = ""] = / — proved by (\S+) "(.+)"$/.exec(notObservable) ?? [];
  const file = join(ROOT, path);
  expect([path, /\.test\.ts$/.test(path) && existsSync(file)]).toEqual([path, true]);
  const named = [...readFileSync(file, "utf8").matchAll(/\b(?:test|\))\(\s*"([^"]+)"/g)].map(
    ([, title]) => title,
  );
  expect(named).toContain(name);
});
