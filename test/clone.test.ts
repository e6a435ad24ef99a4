import { describe, expect, test } from "bun:test";
import { cpSync, mkdirSync, mkdtempSync, rmSync, symlinkSync } from "node:fs";
import { join } from "node:path";
import { scripts } from "../package.json" with { type: "json" };
import { ended, ROOT, run, runIn } from "./command.ts";
import { temporaryFolder } from "./temporary.ts";

const folder = temporaryFolder();

/** Returns a clone with these packages installed. */
function clone(...packages: readonly string[]): string {
  const copy = mkdtempSync(join(folder, "clone-"));
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
