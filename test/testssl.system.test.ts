import { expect, setDefaultTimeout, test } from "bun:test";
import { join } from "node:path";
import { certificateIn } from "./certificate.ts";
import { run } from "./command.ts";
import { portOf, serve } from "./server.ts";
import { skipFor } from "./skip.ts";
import { temporaryFolder } from "./temporary.ts";
import { reasonAgainst } from "./tools.ts";

setDefaultTimeout(300_000);

const folder = temporaryFolder();

const TESTSSL = Bun.which("testssl") ?? Bun.which("testssl.sh");

/** If set, testssl.sh runs all its checks in about a minute. Otherwise it checks versions, cipher order and headers. */
const WHOLE = process.env.TODO_TEST_TESTSSL === "all";
/** Findings about the certificate (which belongs to the operator), this machine's names, and testssl.sh's own OpenSSL. */
const NOT_OURS = ["cert_chain_of_trust", "cert_revocation", "DNS_CAArecord", "engine_problem"];

const whyNot = TESTSSL === null ? reasonAgainst("testssl", "is not installed") : undefined;

test.skipIf(skipFor(whyNot))("testssl.sh finds no problem with the server", async () => {
  const report = join(folder, "report.json");
  await using server = serve(certificateIn(folder).options);
  const port = await portOf(server);
  const scope = WHOLE ? [] : ["--protocols", "--server-preference", "--headers"];
  const options = ["--quiet", "--color", "0", "--warnings", "off", "--jsonfile", report];
  await using testssl = run([TESTSSL ?? "", ...options, ...scope, `https://localhost:${port}`]);
  await testssl.exited;
  const findings: readonly { id: string; severity: string; finding: string }[] =
    await Bun.file(report).json();
  const ids = findings.map(({ id }) => id);
  expect(ids).toEqual(expect.arrayContaining(["TLS1_2", "TLS1_3", "cipher_order", "HSTS_time"]));
  const bad = findings.filter(
    ({ id, severity }) => !["OK", "INFO"].includes(severity) && !NOT_OURS.includes(id),
  );
  expect(bad).toEqual([]);
});
