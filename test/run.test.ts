import { describe, expect, test } from "bun:test";
import { mkdirSync, mkdtempSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { run } from "./command.ts";
import { temporaryFolder } from "./temporary.ts";

const parent = temporaryFolder();

const PASSES = 'import { test } from "bun:test"; test("a", () => {});\n';
/** An error that belongs to no test. */
const STRAY = `${PASSES}await new Promise((done) => setTimeout(() => { setTimeout(done); throw new Error("stray"); }));\n`;
const FAILS = 'import { test } from "bun:test"; test("b", () => { throw new Error("broken"); });\n';
const once = (statement: string): string => `
import { existsSync, writeFileSync } from "node:fs";
import { afterAll, beforeAll, test } from "bun:test";
const isFirst = !existsSync(import.meta.path + ".ran");
writeFileSync(import.meta.path + ".ran", "");
${statement}
test("d", () => {});
`;
const FLAKY = once('test("c", () => { if (isFirst) throw new Error("first\\nerror"); });');

async function runFiles(contents: Readonly<Record<string, string>>, flakyFiles = "2", workers = 2) {
  const folder = mkdtempSync(join(parent, "files-"));
  const files = Object.entries(contents).map(([name, text]) => {
    const file = join(folder, `${name}.test.ts`);
    mkdirSync(folder, { recursive: true });
    writeFileSync(file, text);
    return file;
  });
  const variables = { TODO_TEST_FLAKY_FILES: flakyFiles };
  await using command = run(["bin/bun", "test/run.ts", `--parallel=${workers}`, ...files], variables);
  const code = await command.exited;
  const stderr = command.stderr();
  const flaky = stderr.match(/^FLAKY: .*$/gm) ?? [];
  return { code, stderr, flaky: flaky.map((line) => line.replace(/^FLAKY: .*\//, "FLAKY: ")).toSorted() };
}

test("a test run prints the output of the failed files and the summary only", async () => {
  const passes = `console.error("noise");\n${PASSES}`;
  const fails = `${FAILS}console.error("cause");\ntest("c", () => {});\n`;
  // One worker, because bun test can mix the output of files that several workers run at the same time.
  const { code, stderr } = await runFiles({ one: passes, two: fails, three: passes }, "0", 1);
  expect([code, stderr.match(/noise|cause|^\(\w+\) \w+|^error: .*|\d+ (?:pass|fail)$/gm)]).toEqual([
    1,
    ["cause", "error: broken", "(fail) b", "3 pass", "1 fail"],
  ]);
});

describe("the test run of the gate", () => {
  test("succeeds if up to two failed files pass alone, and lists them with their first error", async () => {
    const inAfterAll = once('afterAll(() => { if (isFirst) throw new Error("at the end"); });');
    expect(await runFiles({ one: FLAKY, two: inAfterAll, three: PASSES })).toMatchObject({
      code: 0,
      flaky: ["FLAKY: one.test.ts: c: first error", "FLAKY: two.test.ts: (unnamed): at the end"],
    });
  });

  test("succeeds if a file that ended its process passes alone", async () => {
    const { code, flaky } = await runFiles({ one: once("if (isFirst) process.exit(0);"), two: PASSES });
    expect([code, flaky]).toEqual([0, [expect.stringContaining("crashed")]]);
  });

  test.each<[what: string, contents: Readonly<Record<string, string>>]>([
    ["a failed file fails again", { one: FAILS, two: FLAKY }],
    ["three files fail", { one: FLAKY, two: FLAKY, three: FLAKY }],
    ["a file fails at import", { one: `throw new Error("at import");\n${PASSES}` }],
    ["a file fails at import and another is flaky", { one: 'import "./nowhere.ts";\n', two: FLAKY }],
    ["a file crashes each time", { one: 'process.kill(process.pid, "SIGSEGV");\n', two: PASSES }],
    ["a file exits each time", { one: `process.exit(0);\n${PASSES}`, two: FLAKY }],
    ["a hook fails each time", { one: `${PASSES}(await import("bun:test")).afterAll(() => { throw 1; });` }],
    ["an error belongs to no test and another file is flaky", { one: FLAKY, two: STRAY }],
    ["a test is skipped without a reason", { one: PASSES.replace("test(", "test.skip("), two: FLAKY }],
  ])("fails if %s", async (_what, contents) => {
    expect((await runFiles(contents)).code).not.toBe(0);
  });

  test("runs no file again unless TODO_TEST_FLAKY_FILES is set", async () => {
    expect((await runFiles({ one: FLAKY }, "0")).code).not.toBe(0);
  });
});
