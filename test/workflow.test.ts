import { expect, test } from "bun:test";
import { readFileSync } from "node:fs";

const read = (name: string): string =>
  readFileSync(new URL(`../.github/workflows/${name}`, import.meta.url), "utf8");
const text = read("ci.yml");
const site = read("site.yml");

const jobsOf = (workflow: string) =>
  [...workflow.matchAll(/^ {2}([\w-]+):\n((?: {4,}.*\n)+)/gm)]
    .filter(([, , job = ""]) => job.includes("runs-on:"))
    .map(([, name = "", job = ""]) => ({ name, job }));

test("a pull request gets a token that can only read, and no privileged container", () => {
  const jobs = jobsOf(text);
  expect(jobs.map(({ name }) => name)).toEqual([
    "pull-request",
    "push",
    "build",
    "attest",
    "image",
    "publish",
  ]);
  const forbidden = /privileged|options:|secrets\.|: write/;
  const [pullRequest, push, build, attest, image, publish] = jobs;
  expect(pullRequest?.job).not.toMatch(forbidden);
  for (const building of [push, build, image]) expect(building?.job).not.toMatch(/: write/);
  for (const tagged of [build, attest, image, publish])
    expect(tagged?.job).toContain("if: startsWith(github.ref, 'refs/tags/v')\n");
  expect(text).toContain("\npermissions:\n  contents: read\n");
  expect(text).not.toMatch(/write-all|pull_request_target/);
});

test("no job that may write runs a command of a package", () => {
  const writing = [...jobsOf(text), ...jobsOf(site)].filter(({ job }) => job.includes(": write"));
  expect(writing.map(({ name }) => name)).toEqual(["attest", "publish", "deploy"]);
  const other =
    /run: (?!echo |docker (?:load|tag|buildx imagetools) |npm publish --ignore-scripts |gh release create )/;
  for (const { job } of writing) expect(job).not.toMatch(other);
  // Permissions of the whole workflow would also apply to the job that builds.
  expect(site).toContain("\npermissions:\n  contents: read\n");
  expect(site).not.toMatch(/^ {2}[\w-]+: write/m);
});

test("every action of the workflows is a commit, with its version", () => {
  const actions = [...`${text}${site}`.matchAll(/\buses: (.+)$/gm)].map(([, value = ""]) => value);
  expect(actions.length).toBeGreaterThan(0);
  const pinned = /^actions\/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$/;
  expect(actions.filter((action) => !pinned.test(action))).toEqual([]);
});

test("the image of a release has the labels that the Containerfile expects, and the release all npm packages", () => {
  const argument = /--build-arg "([A-Z]+)=/g;
  const given = [...text.matchAll(argument)].map(([, name = ""]) => name);
  const containerfile = readFileSync(new URL("../deploy/Containerfile", import.meta.url), "utf8");
  expect(given).toEqual([...containerfile.matchAll(/^ARG ([A-Z]+)=/gm)].map(([, name = ""]) => name));
  const published = [...text.matchAll(/npm publish .*release\/([a-z-]+)-\$/g)].map(([, name = ""]) => name);
  expect(published).toEqual(["todo-service", "todo-service-client", "todo-conformance"]);
});
