import { afterAll, expect, test } from "bun:test";
import { globSync, readFileSync } from "node:fs";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import packageJson from "../package.json" with { type: "json" };
import { run } from "./command.ts";

const ROOT = fileURLToPath(new URL("..", import.meta.url));

// Below the project's root, so that the compiler finds its types.
const folder = await mkdtemp(join(ROOT, "node_modules/.examples-"));
afterAll(() => rm(folder, { recursive: true }));

interface Example {
  readonly file: string;
  readonly code: string;
}

/** Returns the code of every `@example` in the comments of src/. */
function examples(): readonly Example[] {
  return globSync("src/**/*.ts", { cwd: ROOT }).flatMap((file) =>
    [...readFileSync(join(ROOT, file), "utf8").matchAll(/@example\n[ *]*```ts\n(.*?)```/gs)].map(
      ([, block = ""]) => ({ file, code: block.replace(/^ *\* ?/gm, "") }),
    ),
  );
}

/** Returns the source file of each entry point of the package. */
function sources(): Readonly<Record<string, readonly string[]>> {
  return Object.fromEntries(
    Object.entries(packageJson.exports).map(([path, targets]) => [
      path.replace(".", packageJson.name),
      [join(ROOT, "bun" in targets ? targets.bun : targets.default)],
    ]),
  );
}

test("every @example compiles", async () => {
  const found = examples();
  expect(found.length).toBeGreaterThan(3);
  for (const [index, { file, code }] of found.entries()) {
    await writeFile(join(folder, `${index}.ts`), `// ${file}\n${code}\nexport {};\n`);
  }
  const compilerOptions = { paths: sources(), noUnusedLocals: false };
  const include = ["*.ts", join(ROOT, "src/**/*.d.ts")];
  const tsconfig = { extends: join(ROOT, "tsconfig.json"), compilerOptions, include, exclude: [] };
  await writeFile(join(folder, "tsconfig.json"), JSON.stringify(tsconfig));
  await using tsc = run(["node_modules/.bin/tsc", "--noEmit", "-p", folder]);
  await tsc.exited;
  expect(tsc.stdout() + tsc.stderr()).toBe("");
});
