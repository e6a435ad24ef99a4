import { readFileSync } from "node:fs";
import { join } from "node:path";
import { output } from "./command.ts";

/** A requirement of a release. */
interface Check {
  readonly name: string;
  /** Returns what remains to be done, or `undefined`. */
  readonly remaining: () => string | undefined;
}

/** What a check of a release needs to know besides the folder. */
export interface CheckOptions {
  readonly root: string;
  /** The date of today, such as 2026-11-22. */
  readonly today: string;
  /** Returns the problems that `npm audit` finds, or an empty text. */
  readonly audit: () => string;
}

/** Files whose change makes the benchmark results old. */
const MEASURED = ["src", "web/built"];

/** What a person does once, before the first tag. No test runs the jobs of ci.yml that publish. */
export const SETUP: readonly string[] = [
  "GitHub: create the environment release, with a reviewer, and protect the tags v*",
  "GitHub: set the source of Pages to GitHub Actions, and turn on private reports of weaknesses",
  "npm: publish a first version of todo-service, todo-service-client and todo-conformance by hand, because a trusted publisher needs an existing package",
  "npm: add the workflow ci.yml with the environment release as the trusted publisher of the packages",
  "ghcr.io: after the first image, make its package public",
];

/** Returns what remains to be done before the version in package.json can be tagged, one line for each check. */
export function remainingWork(options: CheckOptions): string[] {
  return checks(options).flatMap(({ name, remaining }) => {
    const work = remaining();
    return work === undefined ? [] : [`${name}: ${work}`];
  });
}

function checks({ root, today, audit }: CheckOptions): Check[] {
  const git = (...args: readonly string[]): string => output(root, "git", ...args).trim();
  const read = (path: string): string => readFileSync(join(root, path), "utf8");
  const { version, private: isPrivate, repository } = JSON.parse(read("package.json"));
  return [
    {
      name: "working tree",
      remaining: () =>
        git("status", "--porcelain") === "" ? undefined : "commit or remove the local changes",
    },
    {
      name: "package.json",
      remaining: () => (isPrivate === true ? 'remove "private", because npm does not publish it' : undefined),
    },
    {
      name: "repository",
      remaining: () =>
        repository?.url.includes("/OWNER/") === true
          ? "replace OWNER in the repository's URL in package.json, and run npm run docs"
          : undefined,
    },
    {
      name: "version",
      remaining: () => {
        const others = otherVersions(root).filter(([, other]) => other !== version);
        if (others.length === 0) return undefined;
        return `set ${version} in ${others.map(([path, other]) => `${path} (${other})`).join(" and ")}`;
      },
    },
    { name: "CHANGELOG.md", remaining: () => remainingInChangelog(read("CHANGELOG.md"), version, today) },
    {
      name: "tag",
      remaining: () => {
        const tag = `v${version}`;
        const here = git("tag", "--points-at", "HEAD", "v*").split("\n").filter(Boolean);
        if (here.some((other) => other !== tag))
          return `this commit has the tag ${here.join(", ")}, not ${tag}`;
        if (here.length > 0 || git("tag", "--list", tag) === "") return undefined;
        return `${tag} is the tag of another commit: increase the version`;
      },
    },
    {
      name: "benchmark",
      remaining: () => {
        const revision = /git revision ([0-9a-f]{7,40})/.exec(read("bench/results.md"))?.[1];
        if (revision === undefined) return "bench/results.md names no git revision: run npm run bench";
        const commits = git("rev-list", "--all").split("\n");
        if (!commits.some((commit) => commit.startsWith(revision)))
          return `bench/results.md names the unknown git revision ${revision}: run npm run bench`;
        const changed = git("diff", "--name-only", revision, "HEAD", "--", ...MEASURED)
          .split("\n")
          .filter((path) => path !== "" && !path.endsWith(".test.ts"));
        if (changed.length === 0) return undefined;
        const what = changed.length === 1 ? `${changed[0]} has` : `${changed.length} files have`;
        return `${what} changed since bench/results.md (${revision}): run npm run bench`;
      },
    },
    {
      name: "npm audit",
      remaining: () => audit() || undefined,
    },
    {
      name: "gate",
      remaining: () => {
        const notes = git("notes", "--ref=gate", "list").split("\n");
        const head = git("rev-parse", "HEAD");
        return notes.some((line) => line.endsWith(head))
          ? undefined
          : "run .ci/full --record on this commit until it passes";
      },
    },
  ];
}

/** Returns each file that repeats the version, with its version. */
function otherVersions(root: string): [path: string, version: unknown][] {
  const json = (path: string) => JSON.parse(readFileSync(join(root, path), "utf8"));
  const lock = json("package-lock.json");
  return [
    ["package-lock.json", lock.version],
    ["the root package of package-lock.json", lock.packages[""].version],
    ["openapi.json", json("openapi.json").info.version],
  ];
}

function remainingInChangelog(text: string, version: string, today: string): string | undefined {
  const sections = text.split(/^## /m).slice(1);
  const heading = (section: string): string => section.split("\n")[0] ?? "";
  const unreleased = sections.find((section) => heading(section) === "Unreleased");
  if (unreleased !== undefined && /^[-*] /m.test(unreleased))
    return `move the entries of "Unreleased" below "## ${version} - ${today}"`;
  const released = sections.find((section) => heading(section).split(" ")[0] === version);
  if (released === undefined) return `add "## ${version} - ${today}"`;
  const date = /^\S+ - (\d{4}-\d\d-\d\d)$/.exec(heading(released))?.[1];
  if (date === undefined) return `give "## ${heading(released)}" a date: "## ${version} - ${today}"`;
  if (date > today) return `"## ${heading(released)}" is in the future: set ${today}`;
  return /^[-*] /m.test(released) ? undefined : `list the changes of ${version}`;
}
