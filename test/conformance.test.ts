import { expect, test } from "bun:test";
import { existsSync, readFileSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { type Rule, rules } from "../conformance/rules.ts";
import { hashToken, mintToken, randomBase62 } from "../src/credential/token.ts";
import { run, runTodo } from "./command.ts";
import { openDatabases, whyNoDatabase } from "./postgres.ts";

const ROOT = fileURLToPath(new URL("..", import.meta.url));
const unobserved = rules.flatMap(({ id, notObservable }: Rule) =>
  notObservable === undefined ? [] : [{ id, notObservable }],
);

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
    const [token, password, clients] = [mintToken(), randomBase62(24), join(folder, "clients")];
    await Bun.write(clients, `alice:${hashToken(token).toString("hex")}\n`);
    const args = ["serve", "--port", "0", "--clients-file", clients, "--store", store, ...options];
    await using server = runTodo(args, {
      TODO_ADMIN_USER: "admin",
      TODO_ADMIN_PASSWORD: password,
    });
    const url = await server.url;
    await using kit = run(
      [process.execPath, "--no-env-file", "conformance/run.ts", url, "--fresh", "--client-name", "alice"],
      { CONFORMANCE_TOKEN: token, CONFORMANCE_USER: `admin:${password}` },
    );
    const code = await kit.exited;
    expect(
      kit
        .stdout()
        .split("\n")
        .filter((line) => /^ +✗/.test(line)),
    ).toEqual([]);
    expect(kit.stdout().trimEnd().split("\n").at(-1)).toBe(
      `${url}: PASSED: ${rules.length - unobserved.length} passed, 0 failed, 0 not judged, ${unobserved.length} not observable`,
    );
    expect([code, kit.stderr()]).toEqual([0, ""]);
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
