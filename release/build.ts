/**
 * Builds every artifact of a release into dist/release: executables, Debian packages, npm packages, the container's build context, compose.home.yaml, an SBOM and
 * checksums. Exits with 1 if an executable cannot be built, except for platforms that --allow-missing names.
 *
 *   npm run release -- [--out FOLDER] [--platforms NAME,…] [--allow-missing NAME,…]
 */
import { createHash } from "node:crypto";
import { createReadStream, renameSync, rmSync } from "node:fs";
import { mkdir, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import { pipeline } from "node:stream/promises";
import { parseArgs } from "node:util";
import { repository, version } from "../package.json" with { type: "json" };
import { errorMessage } from "../src/error-message.ts";
import { output, ROOT } from "./command.ts";
import { buildDebianPackage } from "./debian.ts";
import { fetchRuntime, TARGETS, type Target } from "./runtimes.ts";
import { createSbom } from "./sbom.ts";

const DEBIAN_ARCHITECTURES: ReadonlyMap<string, "amd64" | "arm64"> = new Map([
  ["linux-x64", "amd64"],
  ["linux-arm64", "arm64"],
]);

const { values } = parseArgs({
  options: {
    out: { type: "string" },
    runtimes: { type: "string", default: join(ROOT, "dist/runtimes") },
    platforms: { type: "string", default: TARGETS.map(({ name }) => name).join(",") },
    "allow-missing": { type: "string", default: "" },
  },
});
const out = resolve(values.out ?? join(ROOT, "dist/release"));
const targets = values.platforms.split(",").filter(Boolean).map(targetNamed);
const allowed = values["allow-missing"].split(",").filter(Boolean).map(targetNamed);

if (values.out === undefined) await rm(out, { recursive: true, force: true });
await mkdir(out, { recursive: true });
if ((await readdir(out)).length > 0) throw new Error(`${out} is not empty: name an empty folder`);
const missing = targets.filter((target) => !built(target));
packPackages();
writeContext(join(out, `todo-service-${version}-container.tar.gz`));
await writeHomeCompose(join(out, "compose.home.yaml"));
const date = output(ROOT, "git", "log", "-1", "--format=%cI").trim();
await writeFile(join(out, `todo-service-${version}.cdx.json`), createSbom(ROOT, date));
await writeChecksums(out);

print(`built ${(await readdir(out)).length} files in ${out}`);
const unexpected = missing.filter((target) => !allowed.includes(target));
if (unexpected.length > 0) {
  const names = unexpected.map(({ name }) => name).join(",");
  print(`missing: ${names}. To release without these, add --allow-missing ${names}`);
  process.exitCode = 1;
}

function targetNamed(name: string): Target {
  const target = TARGETS.find((one) => one.name === name);
  if (target !== undefined) return target;
  const known = TARGETS.map((one) => one.name).join(", ");
  throw new Error(`"${name}" is not a platform: use ${known}`);
}

/** Builds one executable. If that is impossible, prints the reason and returns false. */
function built(target: Target): boolean {
  const name = `todo-${version}-${target.name}${target.suffix}`;
  // Bun also writes the source maps, which the executable contains anyway.
  const folder = join(out, "build");
  try {
    const runtime = fetchRuntime(target, resolve(values.runtimes));
    const outfile = join(folder, name);
    const flags = [`--target=${target.bun}`, `--compile-executable-path=${runtime}`, `--outfile=${outfile}`];
    output(ROOT, "npm", "run", "build:executable", "--", ...flags);
    renameSync(outfile, join(out, name));
    print(`built ${name}`);
    const kit = `todo-conformance-${version}-${target.name}${target.suffix}`;
    output(ROOT, "npm", "run", "build:conformance-executable", "--", ...flags);
    renameSync(outfile, join(out, kit));
    print(`built ${kit}`);
    const architecture = DEBIAN_ARCHITECTURES.get(target.name);
    if (architecture !== undefined) {
      const file = join(out, `todo-service_${version}_${architecture}.deb`);
      buildDebianPackage({ executable: join(out, name), architecture, file });
    }
    return true;
  } catch (error) {
    print(`cannot build ${target.name}: ${errorMessage(error)}`);
    return false;
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** Packs the service, the client and the conformance kit. */
function packPackages(): void {
  const client = join(ROOT, "dist/client-package");
  output(ROOT, "npm", "run", "build:client-package", "--", client);
  const kit = join(ROOT, "dist/conformance-package");
  output(ROOT, "npm", "run", "build:conformance", "--", kit);
  for (const folder of [ROOT, client, kit]) output(ROOT, "npm", "pack", folder, "--pack-destination", out);
}

/**
 * Writes what `docker build` needs, in one file: `docker build -f deploy/Containerfile - < FILE`. Contains the files of git that
 * .dockerignore names, as committed.
 */
function writeContext(path: string): void {
  const sent = output(ROOT, "git", "show", "HEAD:.dockerignore").match(/(?<=^!).+$/gm) ?? [];
  const files = [...sent, ".dockerignore", "deploy/Containerfile"];
  output(ROOT, "git", "archive", "--format=tar.gz", `--output=${path}`, "HEAD", "--", ...files);
}

/** Writes compose.home.yaml with the image of this release instead of a build, so that nobody needs a clone. */
async function writeHomeCompose(path: string): Promise<void> {
  const text = await readFile(join(ROOT, "deploy/compose.home.yaml"), "utf8");
  const name = new URL(repository.url.replace(/^git\+|\.git$/g, "")).pathname.toLowerCase();
  const image = `    image: ghcr.io${name}:${version}\n`;
  await writeFile(path, text.replace(/^ {4}# A release replaces[\s\S]*?dockerfile: .*\n/m, image));
}

/** Writes SHA256SUMS, which `sha256sum --check` and `shasum -a 256 --check` read. */
async function writeChecksums(folder: string): Promise<void> {
  const lines: string[] = [];
  for (const name of (await readdir(folder)).toSorted()) {
    const hash = createHash("sha256");
    await pipeline(createReadStream(join(folder, name)), hash);
    lines.push(`${hash.digest("hex")}  ${name}\n`);
  }
  await writeFile(join(folder, "SHA256SUMS"), lines.join(""));
}

function print(line: string): void {
  process.stdout.write(`${line}\n`);
}
