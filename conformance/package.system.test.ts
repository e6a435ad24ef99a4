/** The kit runs without this repository: as an npm package on Node, as an executable, and as a transcript of curl commands. */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import {
  clientName,
  type Handler,
  handleRequest,
  problem,
  token,
  user,
  withServer,
} from "./reference-server.ts";

const ROOT = join(import.meta.dir, "..");
const CREDENTIALS = `${user.name}:${user.password}`;
let folder: string;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "todo-kit-package-"));
  const executable = join(folder, "todo-conformance");
  await output(process.execPath, "conformance/build.ts", join(folder, "package"));
  await output("npm", "run", "build:conformance-executable", "--", `--outfile=${executable}`);
}, 120_000);
afterAll(() => rm(folder, { recursive: true }));

/** Runs a program without the variables that name credentials. Returns its exit code and its standard output. */
async function output(...command: string[]): Promise<[code: number, text: string]> {
  const env = { ...process.env, CONFORMANCE_TOKEN: undefined, CONFORMANCE_USER: undefined };
  const child = Bun.spawn(command, { cwd: ROOT, env, stdout: "pipe", stderr: "inherit" });
  const text = await child.stdout.text();
  return [await child.exited, text];
}

const withoutDelete: Handler = (request, state) =>
  request.method === "DELETE" ? problem(405) : handleRequest(request, state);

test.each([
  ["npm package", () => ["node", join(folder, "package/todo-conformance.js")]],
  ["executable", () => [join(folder, "todo-conformance")]],
])("the %s accepts the reference server and rejects a faulty one", async (_, program) => {
  const args = [
    "--token",
    token,
    "--user",
    CREDENTIALS,
    "--client-name",
    clientName,
    "--fresh",
    "--seconds",
    "0",
  ];
  const run = (handler: Handler) =>
    withServer(handler, { todos: new Map(), lastId: 0n }, (url) => output(...program(), url, ...args));
  const accepted = await run(handleRequest);
  expect(accepted).toEqual([
    0,
    expect.stringMatching(/: PASSED: \d+ passed, 0 failed, 0 not judged, 0 skipped/),
  ]);
  expect(await run(withoutDelete)).toEqual([
    1,
    expect.stringMatching(/✗ delete\.204.*Section 4\..*-X DELETE/s),
  ]);
});

test("the npm package has no dependencies, and contains what its manifest names", async () => {
  const [code, packed] = await output("npm", "pack", "--dry-run", "--json", join(folder, "package"));
  const [{ files, unpackedSize }] = JSON.parse(packed);
  expect([code, files.map(({ path }: { path: string }) => path).toSorted()]).toEqual([
    0,
    ["LICENSE", "README.md", "package.json", "specification.sh", "todo-conformance.js"],
  ]);
  expect(unpackedSize).toBeLessThan(250_000);
  expect(JSON.parse(await readFile(join(folder, "package/package.json"), "utf8"))).not.toHaveProperty(
    "dependencies",
  );
});

test("the transcript of curl commands accepts the reference server and rejects a faulty one", async () => {
  const run = (handler: Handler) =>
    withServer(handler, { todos: new Map(), lastId: 0n }, (url) =>
      output("sh", "conformance/specification.sh", url.replace(/\/$/, ""), token, CREDENTIALS),
    );
  const [code, text] = await run(handleRequest);
  expect([code, text]).toEqual([0, expect.not.stringContaining("FAILED")]);
  expect(await run(withoutDelete)).toEqual([1, expect.stringContaining("FAILED")]);
});
