import { beforeEach, describe, expect, test } from "bun:test";
import { mkdirSync, mkdtempSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { skipFor } from "../test/skip.ts";
import { temporaryFolder } from "../test/temporary.ts";
import { whyMissing } from "../test/tools.ts";
import { remainingWork } from "./check.ts";
import { output } from "./command.ts";

const TODAY = "2026-11-22";
const CHANGES = "# Changelog\n\n## 1.2.3 - 2026-11-22\n\n### Added\n\n- A list.\n";

const parent = temporaryFolder();

let root: string;
const git = (...args: readonly string[]): string =>
  output(root, "git", "-c", "user.name=a", "-c", "user.email=a@localhost", ...args).trim();

function write(path: string, text: string): void {
  mkdirSync(dirname(join(root, path)), { recursive: true });
  writeFileSync(join(root, path), text);
}

function commit(): void {
  git("add", ".");
  git("commit", "-q", "-m", "a commit");
  git("notes", "--ref=gate", "add", "-m", "17 passed, 0 failed");
}

beforeEach(() => {
  root = mkdtempSync(join(parent, "repository-"));
  git("init", "-q");
  write("package.json", '{ "version": "1.2.3" }');
  write("package-lock.json", '{ "version": "1.2.3", "packages": { "": { "version": "1.2.3" } } }');
  write("openapi.json", '{ "info": { "version": "1.2.3" } }');
  write("CHANGELOG.md", CHANGES);
  write("src/main.ts", "1;\n");
  commit();
  write("bench/results.md", `- todo-service 1.2.3, git revision ${git("rev-parse", "--short", "HEAD")}\n`);
  commit();
});

const remaining = (audit = ""): string[] => remainingWork({ root, today: TODAY, audit: () => audit });

describe.skipIf(skipFor(whyMissing("git")))("a release", () => {
  test("is ready if every check passes, before and after the tag", () => {
    expect(remaining()).toEqual([]);
    git("tag", "v1.2.3");
    expect(remaining()).toEqual([]);
  });

  test("needs a clean working tree", () => {
    write("left.txt", "");
    expect(remaining()).toEqual(["working tree: commit or remove the local changes"]);
  });

  test.each<[what: string, files: Readonly<Record<string, object>>, work: string]>([
    [
      "a package that npm publishes",
      { "package.json": { version: "1.2.3", private: true } },
      'package.json: remove "private", because npm does not publish it',
    ],
    [
      "the address of the repository",
      { "package.json": { version: "1.2.3", repository: { url: "https://github.com/OWNER/x.git" } } },
      "repository: replace OWNER in the repository's URL in package.json, and run npm run docs",
    ],
    [
      "the same version in every file",
      {
        "package-lock.json": { version: "1.2.3", packages: { "": { version: "1.2.2" } } },
        "openapi.json": { info: { version: "1.2.2" } },
      },
      "version: set 1.2.3 in the root package of package-lock.json (1.2.2) and openapi.json (1.2.2)",
    ],
  ])("needs %s", (_what, files, work) => {
    for (const [path, content] of Object.entries(files)) write(path, JSON.stringify(content));
    commit();
    expect(remaining()).toEqual([work]);
  });

  test.each([
    ["without the version", "# Changelog\n", 'add "## 1.2.3 - 2026-11-22"'],
    [
      "with unreleased changes",
      `${CHANGES}\n## Unreleased\n\n- A page.\n`,
      'move the entries of "Unreleased" below "## 1.2.3 - 2026-11-22"',
    ],
    ["without a date", "## 1.2.3\n\n- A list.\n", 'give "## 1.2.3" a date: "## 1.2.3 - 2026-11-22"'],
    [
      "with a later date",
      "## 1.2.3 - 2026-11-23\n\n- A list.\n",
      '"## 1.2.3 - 2026-11-23" is in the future: set 2026-11-22',
    ],
    ["without changes", "## 1.2.3 - 2026-11-22\n", "list the changes of 1.2.3"],
  ])("rejects a changelog %s", (_what, text, work) => {
    write("CHANGELOG.md", text);
    commit();
    expect(remaining()).toEqual([`CHANGELOG.md: ${work}`]);
  });

  test("accepts a changelog with an empty section of unreleased changes", () => {
    write("CHANGELOG.md", CHANGES.replace("## 1", "## Unreleased\n\n## 1"));
    commit();
    expect(remaining()).toEqual([]);
  });

  test("needs a version that is not the tag of another commit", () => {
    git("tag", "v1.2.3", "HEAD~1");
    expect(remaining()).toEqual(["tag: v1.2.3 is the tag of another commit: increase the version"]);
  });

  test("needs the tag of its version", () => {
    git("tag", "v1.2.4");
    expect(remaining()).toEqual(["tag: this commit has the tag v1.2.4, not v1.2.3"]);
  });

  test("needs a benchmark of the same sources, except tests", () => {
    const revision = git("rev-parse", "--short", "HEAD~1");
    write("src/main.test.ts", "2;\n");
    commit();
    expect(remaining()).toEqual([]);
    write("src/main.ts", "2;\n");
    commit();
    expect(remaining()).toEqual([
      `benchmark: src/main.ts has changed since bench/results.md (${revision}): run npm run bench`,
    ]);
    write("bench/results.md", "- git revision 0123abcd\n");
    commit();
    expect(remaining()).toEqual([
      "benchmark: bench/results.md names the unknown git revision 0123abcd: run npm run bench",
    ]);
  });

  test("needs dependencies without known vulnerabilities", () => {
    expect(remaining("update bun")).toEqual(["npm audit: update bun"]);
  });

  test("needs a run of .ci/full that passed on this commit", () => {
    git("commit", "-q", "--allow-empty", "-m", "another commit");
    expect(remaining()).toEqual(["gate: run .ci/full --record on this commit until it passes"]);
  });
});
