/** The kit accepts servers that follow the specification and share no code with this project. */
import { expect, test } from "bun:test";
import { copyFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import * as reference from "../conformance/reference-server.ts";
import { checkServer } from "../conformance/runner.ts";
import { run } from "./command.ts";
import { installPackages } from "./npm-install.ts";
import { skipFor } from "./skip.ts";
import { temporaryFolder } from "./temporary.ts";
import { whyMissing } from "./tools.ts";

const folder = temporaryFolder();

const SERVERS = fileURLToPath(new URL("../conformance/honest/", import.meta.url));
const token = "Honest-Token-1";
const user = { name: "ann", password: "open sesame" };
const packages = await installPackages("express@5.3.0", "hono@4.13.19", "@hono/node-server@2.1.8");

async function expectAccepted(commandLine: readonly string[]): Promise<void> {
  const variables = { TOKEN: token, USER_PASSWORD: `${user.name}:${user.password}` };
  await using server = run(commandLine, variables);
  const options = { token, user, clientName: "alice", timeoutMs: 60_000, seconds: 3 };
  // The second run finds a server in use.
  for (const fresh of [true, false]) {
    const { results, passed } = await checkServer({ baseUrl: await server.url, ...options, fresh });
    const accepted = ["passed", "not observable", ...(fresh ? [] : ["skipped"])];
    expect(results.filter(({ status }) => !accepted.includes(status))).toEqual([]);
    expect(passed).toBe(true);
  }
}

test.skipIf(skipFor(packages.whyMissing)).each(["express", "hono"])(
  "the conformance kit accepts %s",
  async (name) => {
    const file = join(packages.folder ?? "", `${name}.mjs`);
    await copyFile(join(SERVERS, `${name}.mjs`), file);
    await expectAccepted(["node", file]);
  },
);

test.skipIf(skipFor(whyMissing("python3")))("the conformance kit accepts Python's http.server", async () => {
  await expectAccepted(["python3", join(SERVERS, "stdlib.py")]);
});

test.skipIf(skipFor(whyMissing("perl")))("the conformance kit accepts Perl's core modules", async () => {
  await expectAccepted(["perl", join(SERVERS, "sequential.pl")]);
});

test.skipIf(skipFor(whyMissing("go")))("the conformance kit accepts Go's standard library", async () => {
  const program = join(folder, "server");
  const build = ["go", "build", "-o", program, join(SERVERS, "nethttp.go")];
  // The cache of the compiler goes to the folder, because the user may have no home.
  const built = Bun.spawn(build, { env: { ...process.env, GOCACHE: folder } });
  expect(await built.exited).toBe(0);
  await expectAccepted([program]);
});

test("the conformance kit accepts a server that needs 100 ms for each request, within two minutes", async () => {
  const { token, user, clientName } = reference;
  const slow: reference.Handler = async (request, state) => {
    await Bun.sleep(100);
    return reference.handleRequest(request, state);
  };
  const report = await reference.withServer(slow, { todos: new Map(), lastId: 0n }, (baseUrl) =>
    checkServer({ baseUrl, token, user, clientName, fresh: true, timeoutMs: 60_000 }),
  );
  // The test's own time limit is two minutes.
  expect(report).toMatchObject({ passed: true, complete: true });
}, 120_000);
