import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { join } from "node:path";
import { openPostgres } from "../src/storage/postgres/store.ts";
import { run } from "./command.ts";
import { type Postgres, startPostgres, whyNoDatabase } from "./postgres.ts";
import { skipFor } from "./skip.ts";
import { eachEvent } from "./store.ts";
import { temporaryFolder } from "./temporary.ts";
import { whyMissing } from "./tools.ts";
import { until } from "./until.ts";

const folder = temporaryFolder();

describe.skipIf(skipFor(whyNoDatabase ?? whyMissing("openssl")))("a connection to the database", () => {
  /** The server's certificate, which is only for the name localhost, and an unrelated certificate. */
  let itsOwn: string;
  let another: string;
  let withTls: Postgres;
  let withoutTls: Postgres;
  beforeAll(async () => {
    [itsOwn, another] = [join(folder, "server"), join(folder, "another")];
    for (const path of [itsOwn, another]) await makeCertificate(path);
    withTls = await startPostgres(
      { ssl: "on" },
      {
        "server.crt": await Bun.file(`${itsOwn}.crt`).text(),
        "server.key": await Bun.file(`${itsOwn}.key`).text(),
      },
    );
    withoutTls = await startPostgres();
  });
  afterAll(async () => {
    await withTls[Symbol.asyncDispose]();
    await withoutTls[Symbol.asyncDispose]();
  });

  /** Returns the URL of a new database with the given host name and parameters. */
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
      ...(isChecked && { sslrootcert: `${itsOwn}.crt` }),
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

  test.each<
    [what: string, sslmode: string, hostname: string, trusted: () => string | undefined, reason: string]
  >([
    ["with an untrusted certificate", "verify-full", "localhost", () => another, "self signed certificate"],
    [
      "with a certificate that the system does not trust",
      "verify-full",
      "localhost",
      () => undefined,
      "self signed certificate",
    ],
    ["with an untrusted certificate", "verify-ca", "localhost", () => another, "self signed certificate"],
    [
      "with a certificate for another name",
      "verify-full",
      "127.0.0.1",
      () => itsOwn,
      "does not match certificate",
    ],
  ])("to a server %s fails (sslmode=%s)", async (_what, sslmode, hostname, trusted, reason) => {
    const path = trusted();
    const parameters = { sslmode, ...(path !== undefined && { sslrootcert: `${path}.crt` }) };
    expect(await reasonOf(await urlOf(withTls, hostname, parameters))).toContain(reason);
  });

  test.each(["require", "verify-ca", "verify-full"])(
    "to a server without TLS fails (sslmode=%s)",
    async (sslmode) => {
      const url = await urlOf(withoutTls, "localhost", { sslmode });
      expect(await reasonOf(url)).toBe(`${url.host}: Server does not support SSL`);
    },
  );

  test("with an unknown sslmode or with a missing certificate file fails", async () => {
    const unknown = await urlOf(withTls, "localhost", { sslmode: "always" });
    expect(await reasonOf(unknown)).toContain("verify-full");
    const absent = await urlOf(withTls, "localhost", { sslmode: "verify-full", sslrootcert: "/absent.crt" });
    expect(await reasonOf(absent)).toBe(`${absent.host}: Unable to access caFile path`);
  });
});

/** Creates a self-signed certificate, `path.crt`, and its key, `path.key`. */
async function makeCertificate(path: string): Promise<void> {
  const openssl = run([
    ...["openssl", "req", "-x509", "-nodes", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"],
    ...["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-days", "2"],
    ...["-keyout", `${path}.key`, "-out", `${path}.crt`],
  ]);
  if ((await openssl.exited) !== 0) throw new Error(`no certificate: ${openssl.stderr()}`);
}

/** Returns the reason why a database cannot be opened. Expects one line without the password. */
async function reasonOf(url: URL): Promise<string> {
  try {
    await (await openPostgres(url.href, { queryTimeoutMs: 4000 })).close();
  } catch (error) {
    expect(Bun.inspect(error)).not.toContain(url.password);
    const reason = error instanceof Error ? error.message : String(error);
    expect(reason).not.toContain("\n");
    return reason;
  }
  throw new Error("the database can be opened");
}
