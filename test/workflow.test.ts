import { expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { scripts } from "../package.json" with { type: "json" };

const text = readFileSync(new URL("../.github/workflows/ci.yml", import.meta.url), "utf8");
const valuesOf = (key: string): string[] =>
  [...text.matchAll(new RegExp(`^ +(?:- )?${key}: (.+)$`, "gm"))].map(([, value = ""]) => value);

test("every command of the workflow is a script of the project", () => {
  const known = ["npm ci", ".ci/run --record", ...Object.keys(scripts).map((name) => `npm run ${name}`)];
  const commands = valuesOf("run").flatMap((line) => line.split(" && "));
  const own = commands.filter((command) => !command.startsWith("git config "));
  expect(own).toContain(".ci/run --record");
  expect(own).toContain("npm run release");
  expect(own.filter((command) => !known.includes(command))).toEqual([]);
});

test("every action of the workflow has an exact version", () => {
  const actions = valuesOf("uses");
  expect(actions.length).toBeGreaterThan(0);
  expect(actions.filter((action) => !/^actions\/[\w-]+@v\d+\.\d+\.\d+$/.test(action))).toEqual([]);
});
