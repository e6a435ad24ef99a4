/**
 * Builds the npm package `todo-conformance`: `bin/bun conformance/build.ts [FOLDER]`. The default folder is
 * dist/conformance-package. What the package shares with the main package, such as the version, is read from package.json.
 */
import { copyFile, mkdir, readFile, rm, writeFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import { fileURLToPath } from "node:url";

const ROOT = fileURLToPath(new URL("..", import.meta.url));
const PROGRAM = "todo-conformance.js";

const folder = resolve(process.argv[2] ?? join(ROOT, "dist/conformance-package"));
const main: unknown = JSON.parse(await readFile(join(ROOT, "package.json"), "utf8"));
const shared = ["version", "license", "type", "engines", "repository", "homepage", "bugs"];
const manifest = {
  name: "todo-conformance",
  description: "Checks whether a server follows the specification of the to-do service.",
  keywords: ["todo-service", "todo", "conformance", "property-based-testing"],
  ...Object.fromEntries(Object.entries(Object(main)).filter(([key]) => shared.includes(key))),
  bin: { "todo-conformance": `./${PROGRAM}` },
  files: [PROGRAM, "specification.sh"],
};

await rm(folder, { recursive: true, force: true });
await mkdir(folder, { recursive: true });
await Bun.build({
  entrypoints: [join(ROOT, "conformance/run.ts")],
  outdir: folder,
  naming: PROGRAM,
  target: "node",
  format: "esm",
  banner: "#!/usr/bin/env node",
});
await writeFile(join(folder, "package.json"), `${JSON.stringify(manifest, undefined, 2)}\n`);
for (const [from, to] of [
  ["LICENSE", "LICENSE"],
  ["conformance/README.md", "README.md"],
  ["conformance/specification.sh", "specification.sh"],
] as const)
  await copyFile(join(ROOT, from), join(folder, to));
