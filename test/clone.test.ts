import { describe, expect, test } from "bun:test";
import { cpSync, mkdirSync, mkdtempSync, rmSync, symlinkSync } from "node:fs";
import { appendFile } from "node:fs/promises";
import { join } from "node:path";
import { exports as entries, scripts } from "../package.json" with { type: "json" };
import { ended, ROOT, run, runIn } from "./command.ts";
import { temporaryFolder } from "./temporary.ts";
import { until } from "./until.ts";

const parent = temporaryFolder();

function clone(...packages: readonly string[]): string {
  const copy = mkdtempSync(join(parent, "clone-"));
  for (const path of ["bin", "src/proxy-variables.ts", "test", "package.json", "package-lock.json"])
    cpSync(join(ROOT, path), join(copy, path), { recursive: true });
  mkdirSync(join(copy, "node_modules"));
  for (const name of packages)
    symlinkSync(join(ROOT, "node_modules", name), join(copy, "node_modules", name));
  return copy;
}

describe("in a clone", () => {
  test.each(["bin/todo", "bin/bun"])("%s without packages says to run npm ci", async (program) => {
    const copy = clone();
    expect(await ended(run([join(copy, program), "serve"]))).toEqual({
      code: 1,
      stdout: "",
      stderr: `todo: cannot find the npm package bun for ${copy}. Run npm ci in that folder.\n`,
    });
  });

  test.each(["test", "check", "build:types", "build:client"])(
    "npm run %s without the packages for development says to run npm ci",
    async (script) => {
      const copy = clone("bun", "@oven");
      expect(await ended(runIn(copy, ["npm", "run", "-s", script]))).toEqual({
        code: 1,
        stdout: "",
        stderr: `The packages for development are not installed: run npm ci in ${copy}/\n`,
      });
    },
  );
});

test("an installed package without Bun says to install it again", async () => {
  const copy = clone();
  rmSync(join(copy, "package-lock.json"));
  const { code, stderr } = await ended(run([join(copy, "bin/todo"), "serve"]));
  expect([code, stderr]).toEqual([1, expect.stringContaining("Install todo-service again with npm.")]);
});

test("no script needs the Bun that an install script puts in place", () => {
  const direct = Object.entries(scripts).filter(([, script]) => /(?<!bin\/)\bbun /.test(script));
  expect(direct).toEqual([]);
});

test.each(Object.entries(entries).filter(([, entry]) => entry.default === "./bin/needs-bun.js"))(
  "importing each name of %s in Node fails with a sentence that says to use Bun",
  async (path, entry) => {
    const names = Object.keys(await import(join(ROOT, entry.bun)));
    const program = `import { ${names.join(", ")} } from "todo-service${path.slice(1)}";`;
    await using node = run(["node", "--input-type=module", "-e", program]);
    expect(await node.exited).toBe(1);
    expect(node.stderr()).toContain("Error: todo-service runs on Bun, not on Node.");
  },
);

test("npm run dev restarts the server when a source file changes", async () => {
  const folder = mkdtempSync(join(parent, "dev-"));
  // A copy, because other tests run from the real sources at the same time.
  for (const path of ["bin", "src", "web/built", "openapi.json", "package.json"])
    cpSync(join(ROOT, path), join(folder, path), { recursive: true });
  symlinkSync(join(ROOT, "node_modules"), join(folder, "node_modules"));
  await using server = run(["npm", "run", "-s", "--prefix", folder, "dev", "--", "--port", "0"]);
  const urls = (): readonly string[] => server.stdout().match(/"url":"[^"]+"/g) ?? [];
  await server.url;
  expect(urls()).toHaveLength(1);
  await appendFile(join(folder, "src/http/service.ts"), "// changed\n");
  await until(() => urls().length === 2, "the server restarts");
  const url = /"url":"([^"]+)"/.exec(urls()[1] ?? "")?.[1];
  const { status } = await fetch(`${url}/livez`);
  expect(status).toBe(200);
  // SIGKILL would end npm alone and leave the server behind.
  server.kill("SIGTERM");
  await server.exited;
});
