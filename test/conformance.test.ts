import { expect, test } from "bun:test";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { certificateIn } from "./certificate.ts";
import { ROOT, runTodo } from "./command.ts";
import { expectToConform, unobserved } from "./conformance.ts";
import { openDatabases, whyNoDatabase } from "./postgres.ts";
import { skipFor } from "./skip.ts";
import { temporaryFolder } from "./temporary.ts";

const folder = temporaryFolder();

const ways = ["memory:", "sqlite: --metrics-port=0", ...(skipFor(whyNoDatabase) ? [] : ["postgres:"])];

test.each(ways)("the command passes the conformance kit on %s", async (way) => {
  const [engine = "", ...options] = way.split(" ");
  await using databases = engine === "postgres:" ? await openDatabases() : undefined;
  const file = engine === "sqlite:" ? join(folder, "todos.db") : "";
  const store = (await databases?.newDatabase()) ?? engine + file;
  await expectToConform((args, variables) => runTodo([...args, ...options], variables), store);
});

test.each([
  ["HTTP/1.1", []],
  ["HTTP/2", ["--experimental-http2-fetch"]],
])("the command passes the conformance kit over TLS with %s", async (_version, flags) => {
  const { certFile, options } = certificateIn(folder);
  await expectToConform((args, variables) => runTodo([...args, ...options], variables), "memory:", {
    flags,
    variables: { NODE_EXTRA_CA_CERTS: certFile },
  });
});

test.each(unobserved)("conformance rule $id names a test that exists", ({ notObservable }) => {
  const [, path = "", name = ""] = / — proved by (\S+) "(.+)"$/.exec(notObservable) ?? [];
  const file = join(ROOT, path);
  expect([path, /\.test\.ts$/.test(path) && existsSync(file)]).toEqual([path, true]);
  const named = [...readFileSync(file, "utf8").matchAll(/(?:\btest|\))\(\s*"([^"]+)"/g)].map(
    ([, title]) => title,
  );
  expect(named).toContain(name);
});
