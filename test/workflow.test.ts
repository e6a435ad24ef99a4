import { expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { scripts } from "../package.json" with { type: "json" };

const text = readFileSync(new URL("../.github/workflows/ci.yml", import.meta.url), "utf8");
const valuesOf = (key: string): string[] =>
  [...text.matchAll(new RegExp(`^ +(?:- )?${key}: (.+)$`, "gm"))].map(([, value = ""]) => value);

test("every command of the workflow is a script of the project", () => {
  const known = [
    "npm ci",
    ".ci/run",
    ".ci/full --record",
    ...Object.keys(scripts).map((name) => `npm run ${name}`),
  ];
  const commands = valuesOf("run").flatMap((line) => line.split(" && "));
  const own = commands.filter((command) => !/^(?:git config|echo) /.test(command));
  expect(new Set(own)).toEqual(
    new Set([".ci/run", ".ci/full --record", "npm ci", "npm run release:check", "npm run release"]),
  );
  expect(own.filter((command) => !known.includes(command))).toEqual([]);
});

/** The jobs of the workflow: their names and their texts. */
const jobs = [...text.matchAll(/^ {2}([\w-]+):\n((?: {4,}.*\n)+)/gm)]
  .filter(([, , job = ""]) => job.includes("runs-on:"))
  .map(([, name = "", job = ""]) => ({ name, job }));

test("a pull request gets a token that can only read, and no privileged container", () => {
  expect(jobs.map(({ name }) => name)).toEqual(["pull-request", "push", "attest"]);
  const forbidden = /privileged|options:|secrets\.|: write/;
  const [pullRequest, push, attest] = jobs;
  expect(pullRequest?.job).not.toMatch(forbidden);
  expect(push?.job).not.toMatch(/: write/);
  expect(attest?.job).toContain("if: startsWith(github.ref, 'refs/tags/v')\n");
  expect(text).toContain("\npermissions:\n  contents: read\n");
  expect(text).not.toMatch(/write-all|pull_request_target/);
});

test("every action of the workflows has an exact version", () => {
  const site = readFileSync(new URL("../.github/workflows/site.yml", import.meta.url), "utf8");
  const actions = [...`${text}${site}`.matchAll(/\buses: (.+)$/gm)].map(([, value = ""]) => value);
  expect(actions.length).toBeGreaterThan(0);
  expect(actions.filter((action) => !/^actions\/[\w-]+@v\d+\.\d+\.\d+$/.test(action))).toEqual([]);
});
