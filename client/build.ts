/**
 * Builds the npm package `todo-service-client` from src/sdk: `bin/bun client/build.ts [FOLDER]`. The default folder is
 * dist/client-package. What the package shares with the main package, such as the version, is read from package.json.
 */
import { copyFile, mkdir, readFile, rm, writeFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { $ } from "bun";
import main from "../package.json" with { type: "json" };

const ROOT = fileURLToPath(new URL("..", import.meta.url));

const NAME = "todo-service-client";
/** The same client in the main package, which the examples in the comments import. */
const MAIN_ENTRY = `${main.name}/client`;

const { version, license, type, engines, repository, homepage, bugs } = main;
const MANIFEST = {
  ...{ name: NAME, version },
  description: "A typed client of todo-service without dependencies, for browsers, Node, Bun and Deno.",
  keywords: ["todo-service", "todo", "client", "server-sent-events"],
  ...{ license, type, engines, repository, homepage, bugs },
  sideEffects: false,
  // `main` and `types` are for tools that do not read `exports`, such as TypeScript with the resolution node10.
  main: "./client.js",
  types: "./types/sdk/client.d.ts",
  exports: {
    ".": { types: "./types/sdk/client.d.ts", default: "./client.js" },
    "./package.json": "./package.json",
  },
  files: ["client.js", "types/"],
};

async function build(folder: string): Promise<void> {
  await rm(folder, { recursive: true, force: true });
  await mkdir(folder, { recursive: true });
  const entrypoints = [join(ROOT, "src/sdk/client.ts")];
  await Bun.build({ entrypoints, outdir: folder, target: "browser", format: "esm" });
  const types = join(folder, "types");
  await $`node_modules/.bin/tsc -p tsconfig.client.json --outDir ${types}`.cwd(ROOT);
  for (const name of new Bun.Glob("**/*.d.ts").scanSync(types)) {
    const declarations = await readFile(join(types, name), "utf8");
    await writeFile(join(types, name), declarations.replaceAll(`"${MAIN_ENTRY}"`, `"${NAME}"`));
  }
  await writeFile(join(folder, "package.json"), `${JSON.stringify(MANIFEST, undefined, 2)}\n`);
  await copyFile(join(ROOT, "LICENSE"), join(folder, "LICENSE"));
  await copyFile(join(ROOT, "client/README.md"), join(folder, "README.md"));
}

await build(resolve(process.argv[2] ?? join(ROOT, "dist/client-package")));
