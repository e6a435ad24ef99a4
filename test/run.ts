// Runs `bun test` for `npm test` and `npm run test:system`, and prints the output of failed files. Also fails if a test is skipped
// without a printed reason, or for a reason that begins with no line of TODO_TEST_ALLOWED_SKIPS. With TODO_TEST_FLAKY_FILES, up to
// this many failed files run once more, each alone. If all pass, it succeeds, and prints `FLAKY: file: its first error` for each.
import { randomUUID } from "node:crypto";
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { bypassProxiesOnLoopback } from "../src/proxy-variables.ts";
import { requireDevelopmentPackages } from "./development-packages.ts";

requireDevelopmentPackages();
bypassProxiesOnLoopback(process.env);
const allowed = process.env.TODO_TEST_ALLOWED_SKIPS?.split("\n");
const maxFlaky = Number(process.env.TODO_TEST_FLAKY_FILES ?? 0);
/** Where the first test that starts PostgreSQL prepares a folder for all of them. */
const template = join(tmpdir(), `todo-postgres-template-${randomUUID()}`);

let child: Bun.Subprocess | undefined;
// Ctrl-C also reaches the child. It ends by itself, and its summary is still printed.
process.on("SIGINT", () => {});
process.on("SIGTERM", () => child?.kill("SIGTERM"));

/** The files with a skipped test, and by reason, the files that printed it. */
const skipping = new Set<string>();
const reasons = new Map<string, Set<string>>();
const failing = new Set<string>();
let file = "";
/** The output of each file that was not printed, because nothing has failed there. The summary belongs to no file. */
const outputs = new Map<string, string[]>();
/** Marks the output of a file with a failed test, an error outside of tests, or a process that ended. */
const FAILURE = /^(?:\(fail\) |# Unhandled error|✗ |error: a test worker)/;
/** The number of failed tests and files, as the summary of `bun test` counts them; `undefined` before the summary. */
let failed: number | undefined;
/** Whether the summary counts errors outside of tests, which the results do not name. */
let hasErrors = false;

const args = process.argv.slice(2);
const code = maxFlaky > 0 ? await runTwice() : await run(args);
rmSync(template, { recursive: true, force: true });
const failures = report();
process.exitCode = code === 0 && failures > 0 ? 1 : code;

/** Runs `bun test` and returns its exit code; 1 if a test file ended the process before the summary. */
async function run(options: readonly string[]): Promise<number> {
  failed = undefined;
  hasErrors = false;
  const tests = Bun.spawn(["bin/bun", "test", ...options], {
    env: { ...process.env, TODO_TEST_POSTGRES_TEMPLATE: template },
    stdin: "ignore",
    stdout: "inherit",
    stderr: "pipe",
  });
  child = tests;
  let rest = "";
  const decoder = new TextDecoder();
  for await (const chunk of tests.stderr) {
    const lines = (rest + decoder.decode(chunk, { stream: true })).split("\n");
    rest = lines.pop() ?? "";
    for (const line of lines) read(line);
  }
  read(rest);
  // Without a summary, the process ended early, and each output may say why.
  const left = failed === undefined ? [...outputs.values()].flat() : (outputs.get("") ?? []);
  process.stderr.write(`${left.join("\n")}\n`);
  outputs.clear();
  return (await tests.exited) || (failed === undefined ? 1 : 0);
}

/** Runs `bun test`, and failed files once more. Returns the exit code of the first run unless all of them pass then. */
async function runTwice(): Promise<number> {
  const folder = mkdtempSync(join(tmpdir(), "todo-test-run-"));
  const path = join(folder, "results.xml");
  const firstCode = await run([...args, "--reporter=junit", `--reporter-outfile=${path}`]);
  const errors = firstCode === 0 ? undefined : firstErrors(path);
  rmSync(folder, { recursive: true });
  if (errors === undefined || errors.size > maxFlaky) return firstCode;
  const options = args.filter((arg) => arg.startsWith("-"));
  for (const name of errors.keys()) {
    process.stderr.write(`\n${name} failed: it runs once more, alone\n`);
    if ((await run([...options, resolve(name)])) !== 0) return firstCode;
  }
  for (const [name, error] of errors) process.stderr.write(`FLAKY: ${name}: ${error}\n`);
  return 0;
}

/** Returns the first error of each failed file; `undefined` if the results do not name every failure. */
function firstErrors(path: string): Map<string, string> | undefined {
  const errors = new Map<string, string>();
  const results = existsSync(path) ? readFileSync(path, "utf8") : "";
  const FAILURE =
    /<testcase name="([^"]*)"[^>]* file="([^"]*)"[^>]*>\s*<failure(?: type="[^"]*")?(?: message="([^"]*)")?/g;
  let named = 0;
  for (const [, test, name = "", error = ""] of results.matchAll(FAILURE)) {
    named++;
    if (!errors.has(name)) errors.set(name, `${test}: ${error}`.replaceAll(/(?:\s|&#10;)+/g, " "));
  }
  // An error at import time is counted, but belongs to no test.
  return named > 0 && named === failed && !hasErrors ? errors : undefined;
}

function read(line: string): void {
  // The summary repeats skipped and failed tests without their file.
  const isSummary = /^\d+ tests (?:skipped|failed):$|^ *\d+ pass$/.test(line);
  const next = isSummary ? "" : /^(.+\.test\.ts):$/.exec(line)?.[1];
  if (next !== undefined) {
    printFailures();
    file = next;
    if (isSummary) outputs.delete("");
  }
  const output = outputs.get(file) ?? [];
  outputs.set(file, output);
  output.push(line);
  const count = /^ *(\d+) fail$/.exec(line)?.[1];
  if (count !== undefined) failed = Number(count);
  if (/^ *\d+ errors?$/.test(line)) hasErrors = true;
  if (line.startsWith("(skip) ") && file !== "") skipping.add(file);
  const reason = /^skipped: (.+)$/.exec(line)?.[1];
  if (reason !== undefined) reasons.set(reason, (reasons.get(reason) ?? new Set()).add(file));
}

/** Prints the output so far of a file in which something failed. The outputs of files that run at the same time alternate. */
function printFailures(): void {
  const output = outputs.get(file) ?? [];
  if (file === "" || (!failing.has(file) && !output.some((line) => FAILURE.test(line)))) return;
  failing.add(file);
  outputs.delete(file);
  const [, ...lines] = output.filter((line) => !line.startsWith("(pass) "));
  // A file that runs at the same time as others has parts that are empty.
  if (lines.some((line) => line !== "")) process.stderr.write(`${output[0]}\n${lines.join("\n")}\n`);
}

/** Prints the skips by reason; returns how many of them make the run fail. */
function report(): number {
  const explained = new Set([...reasons.values()].flatMap((files) => [...files]));
  const unexplained = [...skipping].filter((name) => !explained.has(name));
  const forbidden = [...reasons.keys()].filter(
    (reason) => allowed?.some((start) => reason.startsWith(start)) === false,
  );
  if (reasons.size > 0) process.stderr.write("\nSkipped tests by reason:\n");
  for (const [reason, files] of reasons) process.stderr.write(`- ${reason}: ${[...files].join(", ")}\n`);
  for (const name of unexplained) process.stderr.write(`(fail) ${name} skips a test without a reason\n`);
  for (const reason of forbidden)
    process.stderr.write(`(fail) tests may not be skipped here because ${reason}\n`);
  return unexplained.length + forbidden.length;
}
