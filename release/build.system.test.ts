import { beforeAll, describe, expect, setDefaultTimeout, test } from "bun:test";
import { open, readdir, readFile, symlink, utimes } from "node:fs/promises";
import { join } from "node:path";
import { dependencies, version } from "../package.json" with { type: "json" };
import { type Command, run, runIn, succeed } from "../test/command.ts";
import { whyNoRegistry } from "../test/npm-install.ts";
import { skipFor } from "../test/skip.ts";
import { temporaryFolder } from "../test/temporary.ts";
import { ROOT } from "./command.ts";
import { TARGETS } from "./runtimes.ts";

const NATIVE = `${process.platform === "darwin" ? "macos" : process.platform}-${process.arch}`;
const PLATFORMS = TARGETS.map(({ name }) => name);
const LIMIT_MS = 1_200_000;
setDefaultTimeout(LIMIT_MS);

const folder = temporaryFolder();
/** A clone with the local changes, because other tests write to the folder dist of this one. */
const clone = join(folder, "clone");
beforeAll(async () => {
  // git stash fails while a file has another time than in the index.
  await succeed(run(["git", "update-index", "-q", "--refresh"]));
  const changes = (await succeed(run(["git", "stash", "create"]))).trim();
  await succeed(run(["git", "clone", "--quiet", "--shared", ".", clone]));
  if (changes !== "") await succeed(inClone(["git", "checkout", "--quiet", "--detach", changes]));
  await symlink(join(ROOT, "node_modules"), join(clone, "node_modules"));
  await utimes(join(clone, "README.md"), 0, 0);
});

const inClone = (commandLine: readonly string[], variables: Readonly<Record<string, string>> = {}): Command =>
  runIn(clone, commandLine, variables);

const build = (
  out: string,
  args: readonly string[],
  variables: Readonly<Record<string, string>> = {},
): Command => inClone(["npm", "run", "release", "--", "--out", join(folder, out), ...args], variables);

async function firstBytes(path: string): Promise<Buffer> {
  await using file = await open(path);
  const { buffer } = await file.read(Buffer.alloc(4096), 0, 4096, 0);
  return buffer;
}

async function platformOf(path: string): Promise<string> {
  const head = await firstBytes(path);
  if (head.toString("latin1", 0, 4) === "\x7fELF")
    return { 62: "linux-x64", 183: "linux-arm64" }[head.readUInt16LE(18)] ?? "an unknown ELF";
  if (head.readUInt32LE(0) === 0xfeedfacf)
    return { 16777223: "macos-x64", 16777228: "macos-arm64" }[head.readUInt32LE(4)] ?? "an unknown Mach-O";
  if (head.toString("latin1", 0, 2) === "MZ")
    return (
      { 34404: "windows-x64", 43620: "windows-arm64" }[head.readUInt16LE(head.readUInt32LE(0x3c) + 4)] ??
      "an unknown PE"
    );
  return "unknown";
}

describe("npm run release", () => {
  const withoutExecutables = ["--platforms", ""];
  beforeAll(async () => {
    await succeed(build("first", withoutExecutables));
  }, LIMIT_MS);

  const names = [
    "SHA256SUMS",
    "compose.home.yaml",
    `todo-service-${version}-container.tar.gz`,
    `todo-service-${version}.cdx.json`,
    `todo-service-${version}.tgz`,
    `todo-service-client-${version}.tgz`,
    `todo-conformance-${version}.tgz`,
  ];

  test("builds packages, build context, SBOM and checksums, and identical files in a second run", async () => {
    await succeed(build("second", withoutExecutables));
    for (const out of ["first", "second"])
      expect((await readdir(join(folder, out))).toSorted()).toEqual(names.toSorted());
    const [first, second] = await Promise.all(
      ["first", "second"].map((out) => readFile(join(folder, out, "SHA256SUMS"), "utf8")),
    );
    expect(second).toEqual(first);
    await succeed(
      run(["sh", "-c", 'cd "$0" && sha256sum --check --strict SHA256SUMS', join(folder, "first")]),
    );
  });

  test("lists the shipped components in the SBOM, and no development dependencies", async () => {
    const sbom = JSON.parse(
      await readFile(join(folder, "first", `todo-service-${version}.cdx.json`), "utf8"),
    );
    const { component } = sbom.metadata;
    expect([sbom.bomFormat, component.name, component.version]).toEqual([
      "CycloneDX",
      "todo-service",
      version,
    ]);
    const components: string[] = sbom.components.map(({ name }: { readonly name: string }) => name);
    expect(components).toEqual(expect.arrayContaining(Object.keys(dependencies)));
    for (const name of ["typescript", "playwright-core", "ajv"]) expect(components).not.toContain(name);
  });

  test("writes a compose file for homes that names the image of the release and needs no clone", async () => {
    const text = await readFile(join(folder, "first", "compose.home.yaml"), "utf8");
    const { services }: { services: { todo: Record<string, unknown> } } = JSON.parse(
      JSON.stringify(Bun.YAML.parse(text)),
    );
    expect(services.todo.image).toEqual(
      expect.stringMatching(new RegExp(`^ghcr\\.io/[a-z\\d-]+/todo-service:${version}$`)),
    );
    expect(services.todo.build).toBeUndefined();
  });

  test("builds a context that contains the Containerfile and the files that it copies", async () => {
    const context = join(folder, "first", `todo-service-${version}-container.tar.gz`);
    const files = (await succeed(run(["tar", "-tzf", context]))).split("\n");
    for (const file of [
      "deploy/Containerfile",
      ".dockerignore",
      "package-lock.json",
      "src/cli/main.ts",
      "bin/bun",
    ])
      expect(files).toContain(file);
    const containerfile = await readFile("deploy/Containerfile", "utf8");
    for (const [, sources = ""] of containerfile.matchAll(/^COPY (?!--from)(.*) \S+$/gm))
      for (const source of sources.split(" "))
        expect(files.some((file) => file === source || file.startsWith(`${source}/`))).toBe(true);
    expect(files.filter((file) => /^(?:test|bench|docs)\//.test(file))).toEqual([]);
  });

  test("names each platform that it cannot build, and fails unless that is allowed", async () => {
    const unreachable = {
      npm_config_registry: "http://127.0.0.1:1/",
      npm_config_fetch_retries: "0",
      npm_config_cache: join(folder, "empty-cache"),
    };
    // Another test may have downloaded the runtimes to the default folder.
    const args = ["--platforms", "windows-arm64", "--runtimes", join(folder, "no-runtimes")];
    await using refused = build("missing", args, unreachable);
    expect(await refused.exited).toBe(1);
    expect(refused.stdout()).toMatch(/^cannot build windows-arm64: npm pack .*ECONNREFUSED/ms);
    expect(refused.stdout()).toContain(
      "missing: windows-arm64. To release without these, add --allow-missing windows-arm64",
    );
    await succeed(build("allowed", [...args, "--allow-missing", "windows-arm64"], unreachable));
  });

  test("rejects a platform that does not exist", async () => {
    await using refused = build("unknown", ["--platforms", "amiga"]);
    expect(await refused.exited).toBe(1);
    expect(refused.stderr()).toContain('"amiga" is not a platform: use linux-x64, linux-arm64,');
  });

  test.skipIf(skipFor(whyNoRegistry))(
    "builds an executable for each platform, and the executable for this machine runs",
    async () => {
      // The registry may lack the runtime of another platform.
      const output = await succeed(build("all", ["--allow-missing", PLATFORMS.join(",")]));
      const missing = [...output.matchAll(/^cannot build (\S+): npm pack /gm)].map(([, name]) => name);
      const all = join(folder, "all");
      const executables = (await readdir(all)).filter((name) => name.startsWith(`todo-${version}-`));
      const platforms = await Promise.all(executables.map((name) => platformOf(join(all, name))));
      expect(executables).toEqual(
        platforms.map((name) => `todo-${version}-${name}${name.startsWith("windows") ? ".exe" : ""}`),
      );
      expect(platforms.toSorted()).toEqual(PLATFORMS.filter((name) => !missing.includes(name)).toSorted());
      expect(platforms).toContain(NATIVE);
      await using server = run([join(all, `todo-${version}-${NATIVE}`), "serve", "--port", "0"]);
      expect((await fetch(`${await server.url}/docs`, { headers: { Accept: "text/html" } })).status).toBe(
        200,
      );
    },
  );
});
