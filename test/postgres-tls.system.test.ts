import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { join } from "node:path";
import { openPostgres } from "../src/storage/postgres/store.ts";
import { makeCertificate } from "./certificate.ts";
import { run } from "./command.ts";
import { type Postgres, startPostgres, whyNoDatabase } from "./postgres.ts";
import { skipFor } from "./skip.ts";
import { eachEvent } from "./store.ts";
import { reasonOf } from "./stores.ts";
import { temporaryFolder } from "./temporary.ts";
import { until } from "./until.ts";

const folder = temporaryFolder();

const SELF_SIGNED = "self signed certificate";

describe.skipIf(skipFor(whyNoDatabase))("a connection to the database", () => {
  let withTls: Postgres;
  let withoutTls: Postgres;
  beforeAll(async () => {
    // The certificate of the server is only for the name localhost.
    const { cert, key } = makeCertificate({ hasAddresses: false });
    await Bun.write(join(folder, "server.crt"), cert);
    await Bun.write(join(folder, "another.crt"), makeCertificate().cert);
    withTls = await startPostgres({ ssl: "on" }, { "server.crt": cert, "server.key": key });
    withoutTls = await startPostgres();
  });
  afterAll(async () => {
    await withTls[Symbol.asyncDispose]();
    await withoutTls[Symbol.asyncDispose]();
  });

  async function urlOf(server: Postgres, hostname: string, parameters: Record<string, string>) {
    const url = new URL(await server.newDatabase());
    url.hostname = hostname;
    for (const [name, value] of Object.entries(parameters)) url.searchParams.set(name, value);
    return url;
  }

  test.each<[sslmode: string | undefined, hostname: string, isChecked: boolean, isEncrypted: boolean]>([
    [undefined, "localhost", false, false],
    ["disable", "localhost", false, false],
    ["prefer", "localhost", false, true],
    ["require", "localhost", false, true],
    ["require", "127.0.0.1", false, true],
    ["verify-ca", "127.0.0.1", true, true],
    ["verify-full", "localhost", true, true],
  ])("with sslmode=%s to %s, where the certificate is verified: %p, is encrypted: %p", async (...row) => {
    const [sslmode, hostname, isChecked, isEncrypted] = row;
    const url = await urlOf(withTls, hostname, {
      ...(sslmode !== undefined && { sslmode }),
      ...(isChecked && { sslrootcert: join(folder, "server.crt") }),
    });
    const store = await openPostgres(url.href, { connections: 2 });
    const leaving = new AbortController();
    const events = eachEvent(store, await store.position(), leaving.signal);
    const next = events.next();
    await Promise.all([store.insert("x"), store.get(1n), store.keys.list()]);
    expect((await next).value?.type).toBe("created");
    const ask = () =>
      withTls.query<{ ssl: boolean; listens: boolean }>(
        `SELECT ssl, query ILIKE 'listen%' AS listens FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)
         WHERE datname = '${url.pathname.slice(1)}'`,
      );
    let sessions = await ask();
    await until(async () => {
      sessions = await ask();
      return sessions.some(({ listens }) => listens);
    }, "a session listens");
    expect(sessions.length).toBeGreaterThan(1);
    expect(sessions.filter(({ ssl }) => ssl !== isEncrypted)).toEqual([]);
    leaving.abort();
    await events.return?.();
    await store.close();
  });

  test.each<[what: string, sslmode: string, hostname: string, trusted: string | undefined, reason: string]>([
    ["whose certificate is not trusted", "verify-full", "localhost", "another.crt", SELF_SIGNED],
    ["whose certificate the system does not trust", "verify-full", "localhost", undefined, SELF_SIGNED],
    ["whose certificate is not trusted", "verify-ca", "localhost", "another.crt", SELF_SIGNED],
    ["with another name", "verify-full", "127.0.0.1", "server.crt", "does not match certificate"],
    ["with an unknown sslmode", "always", "localhost", undefined, "verify-full"],
    ["without a certificate", "verify-full", "localhost", "absent.crt", ": Unable to access caFile path"],
  ])("to a server %s fails (sslmode=%s)", async (_what, sslmode, hostname, trusted, reason) => {
    const parameters = { sslmode, ...(trusted !== undefined && { sslrootcert: join(folder, trusted) }) };
    expect(await reasonOf(await urlOf(withTls, hostname, parameters))).toContain(reason);
  });

  test.each(["require", "verify-ca", "verify-full"])("to a server without TLS fails: %s", async (sslmode) => {
    const url = await urlOf(withoutTls, "localhost", { sslmode });
    expect(await reasonOf(url)).toBe(`${url.host}: Server does not support SSL`);
  });
});

const { TODO_TEST_POSTGRES_BIN: BIN = "" } = process.env;

const whyNot = BIN === "" ? "TODO_TEST_POSTGRES_BIN is not set" : whyNoDatabase;
test.skipIf(skipFor(whyNot))("startPostgres starts the program of TODO_TEST_POSTGRES_BIN", async () => {
  const version = run([join(BIN, "postgres"), "--version"]);
  await version.exited;
  await using postgres = await startPostgres();
  const [row] = await postgres.query<{ server_version: string }>("SHOW server_version");
  expect(version.stdout()).toBe(`postgres (PostgreSQL) ${row?.server_version}\n`);
});
