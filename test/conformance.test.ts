import { expect, test } from "bun:test";
import { existsSync, readFileSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { makeCertificate } from "./certificate.ts";
import { runTodo } from "./command.ts";
import { expectToConform, unobserved } from "./conformance.ts";
import { openDatabases, whyNoDatabase } from "./postgres.ts";
import { skipFor } from "./skip.ts";

const ROOT = fileURLToPath(new URL("..", import.meta.url));
/** Each store, one of them with metrics. */
const ways = ["memory:", "sqlite: --metrics-port=0", ...(skipFor(whyNoDatabase) ? [] : ["postgres:"])];

test.each(ways)("the command passes the conformance kit on %s", async (way) => {
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

test.each([
  ["HTTP/1.1", []],
  ["HTTP/2", ["--experimental-http2-fetch"]],
])("the command passes the conformance kit over TLS with %s", async (_version, flags) => {
  const folder = await mkdtemp(join(tmpdir(), "todo-conformance-"));
  try {
    const { cert, key } = makeCertificate();
    const [certFile, keyFile] = [join(folder, "cert.pem"), join(folder, "key.pem")];
    await Promise.all([Bun.write(certFile, cert), Bun.write(keyFile, key)]);
    await expectToConform(
      (args, variables) => runTodo([...args, "--tls-cert", certFile, "--tls-key", keyFile], variables),
      "memory:",
      { flags, variables: { NODE_EXTRA_CA_CERTS: certFile } },
    );
  } finally {
    await rm(folder, { recursive: true });
  }
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
