import { expect, test } from "bun:test";
import { existsSync, readFileSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { checkServer } from "../conformance/runner.ts";
import { createKey, createKeyLookup } from "../src/credential/key.ts";
import { listen } from "../src/http/server/listen.ts";
import { createService, type Service, type ServiceOptions } from "../src/http/service.ts";
import { openMemory } from "../src/storage/memory/store.ts";
import { makeCertificate } from "./certificate.ts";
import { runTodo } from "./command.ts";
import { expectToConform, expectToConformInPrivateMode, unobserved } from "./conformance.ts";
import { openDatabases, whyNoDatabase } from "./postgres.ts";
import { skipFor } from "./skip.ts";

const ROOT = fileURLToPath(new URL("..", import.meta.url));
const engines = ["memory:", "sqlite:", ...(skipFor(whyNoDatabase) ? [] : ["postgres:"])];

/** Each store, and the memory store also with metrics. */
const ways = [...engines, "memory: --metrics-port=0"];

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

test("the command passes the conformance kit in private mode", async () => {
  await expectToConformInPrivateMode(runTodo);
});

/** Returns a service whose routes are partly those of another one. */
function withRoutes(service: Service, change: (routes: Service["routes"]) => Service["routes"]): Service {
  return { ...service, routes: { ...service.routes, ...change(service.routes) } };
}

/** Plants a fault in the service in private mode, given with the service without private mode. */
const PLANTED_FAULTS: Readonly<
  Record<string, [rule: string | undefined, plant: (options: ServiceOptions) => Service]>
> = {
  "no fault": [undefined, createService],
  "a path without authentication": [
    "private.guard.path",
    (options) =>
      withRoutes(createService(options), () => {
        const { routes } = createService({ ...options, privateMode: false });
        const docs = routes["/docs"];
        return docs === undefined ? {} : { "/docs": docs };
      }),
  ],
  "405 before 401": [
    "private.guard.method",
    (options) =>
      withRoutes(createService(options), ({ "/api/todos": guarded }) => {
        const { "/api/todos": open } = createService({ ...options, privateMode: false }).routes;
        if (guarded === undefined || open === undefined) throw new Error("there is no route /api/todos");
        const isKnown = ({ method }: Request) => /^(GET|HEAD|POST|OPTIONS)$/.test(method);
        return {
          "/api/todos": (request, server) => (isKnown(request) ? guarded : open)(request, server),
        };
      }),
  ],
  "scopes without effect": [
    "private.read.rejected",
    (options) =>
      createService({
        ...options,
        lookupClient: async (token) => {
          const client = await options.lookupClient?.(token);
          return client == null ? undefined : { name: client.name };
        },
      }),
  ],
};

test.each(Object.entries(PLANTED_FAULTS))(
  "the conformance kit detects exactly the planted fault in private mode: %s",
  async (_, [rule, plant]) => {
    const store = openMemory();
    const [writer, reader] = [
      await createKey(store.keys, "phone", undefined, Date.now()),
      await createKey(store.keys, "screen", undefined, Date.now(), "read"),
    ];
    const user = { name: "ann", password: "open sesame" };
    const service = plant({
      store,
      keys: store.keys,
      privateMode: true,
      onLoopback: true,
      lookupClient: createKeyLookup(store.keys, Date.now),
      checkUser: (name, password) => name === user.name && password === user.password,
    });
    const listener = listen(service, { host: "127.0.0.1", port: 0 });
    try {
      const { results, passed } = await checkServer({
        baseUrl: listener.url,
        token: writer?.token ?? "",
        user,
        clientName: "phone",
        fresh: true,
        privateMode: { readToken: reader?.token ?? "", corsOrigin: "http://localhost:5173" },
        timeoutMs: 60_000,
      });
      const failed = results.flatMap(({ rule, status }) => (status === "failed" ? [rule.id] : []));
      expect({ failed, passed }).toEqual({
        failed: rule === undefined ? [] : [rule],
        passed: rule === undefined,
      });
    } finally {
      service.close();
      await listener.abort();
    }
  },
);

test.each(unobserved)("conformance rule $id names a test that exists", ({ notObservable }) => {
  const [, path = "", name = ""] = / — proved by (\S+) "(.+)"$/.exec(notObservable) ?? [];
  const file = join(ROOT, path);
  expect([path, /\.test\.ts$/.test(path) && existsSync(file)]).toEqual([path, true]);
  const named = [...readFileSync(file, "utf8").matchAll(/\b(?:test|\))\(\s*"([^"]+)"/g)].map(
    ([, title]) => title,
  );
  expect(named).toContain(name);
});
