// Tests the tests: plants one fault (a mutant) at a time in a copy of the project, and counts those that no test notices.
// Usage: npm run test:mutation -- FOLDER|FILE… [--count 200] [--seed 1] [--seconds 30] [--mutants ID,ID]
// For each mutant, runs the fast tests that cover its line, the quickest first, up to `--seconds`. `--mutants` repeats some.
// The runner of StrykerJS knows neither `bun test` nor which test covers which line.
import { globSync } from "node:fs";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { availableParallelism, tmpdir } from "node:os";
import { dirname, join, relative } from "node:path";
import { parseArgs } from "node:util";
import { copyRepository } from "./patched-copy.ts";

/** A mutant whose tests take this many times as long as usual has made them hang. */
const TIMEOUT_FACTOR = 4;
const TIMEOUT_MIN_MS = 30_000;

/** A mutant as `mutants.mjs` prints it. */
interface Mutant {
  readonly id: string;
  readonly file: string;
  readonly line: number;
  readonly lastLine: number;
  readonly start: number;
  readonly end: number;
  readonly kind: string;
  readonly replacement: string;
}

interface TestFile {
  readonly path: string;
  readonly ms: number;
  readonly lines: ReadonlyMap<string, ReadonlySet<number>>;
}

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    count: { type: "string", default: "200" },
    seed: { type: "string", default: "1" },
    seconds: { type: "string", default: "30" },
    mutants: { type: "string" },
  },
});
if (positionals.length === 0) {
  process.stderr.write("Name at least one folder, such as src/credential.\n");
  process.exit(2);
}

const budgetMs = Number(values.seconds) * 1000;
const copies = await Promise.all(Array.from({ length: availableParallelism() }, copyProject));
const [original = ""] = copies;
try {
  const tests = await measureTests();
  for (const folder of positionals) await judge(folder, tests);
} finally {
  await Promise.all(copies.map((copy) => rm(copy, { recursive: true })));
}

/** Plants the sample of one folder and prints the score and the survivors. */
async function judge(folder: string, tests: readonly TestFile[]): Promise<void> {
  const all = await mutantsOf(folder);
  const ids = values.mutants?.split(",");
  const sampled = ids ? all.filter(({ id }) => ids.includes(id)) : sample(all);
  const survivors: Mutant[] = [];
  let judged = 0;
  await inParallel(sampled, async (mutant, copy) => {
    const affected = testsFor(mutant, tests);
    const isKilled = affected.length > 0 && !(await passes(mutant, affected, copy));
    if (!isKilled) survivors.push(mutant);
    const state = isKilled ? "killed" : affected.length === 0 ? "not covered" : "survived";
    process.stderr.write(`${++judged}/${sampled.length} ${folder} ${mutant.id} ${state}\n`);
  });
  const share = (100 * survivors.length) / Math.max(sampled.length, 1);
  process.stdout.write(
    `\n${folder}: ${all.length} mutants, ${sampled.length} planted (seed ${values.seed}), ` +
      `${survivors.length} survived (${share.toFixed(1)} %)\n`,
  );
  const oneLine = (code: string): string => code.replace(/\s+/g, " ").slice(0, 100);
  for (const { id, file, line, kind, start, end, replacement } of survivors.toSorted(
    (a, b) => a.file.localeCompare(b.file) || a.line - b.line,
  )) {
    const code = (await readFile(join(original, file), "utf8")).slice(start, end);
    process.stdout.write(`  ${id} line ${line} ${kind}: ${oneLine(code)} -> ${oneLine(replacement)}\n`);
  }
}

async function mutantsOf(folder: string): Promise<Mutant[]> {
  const found = folder.endsWith(".ts") ? [folder] : globSync(`${folder}/**/*.ts`, { cwd: original });
  const files = found.filter((path) => !/\.test\.ts$|\.d\.ts$|\/contract\.ts$/.test(path)).toSorted();
  const child = Bun.spawn(["node", "test/mutants.mjs", ...files], { cwd: original, stdout: "pipe" });
  return JSON.parse(await child.stdout.text());
}

/** Draws without replacement. The draw of a mutant depends on the seed and on its own file only. */
function sample(all: readonly Mutant[]): Mutant[] {
  const rank = ({ file, start, end, replacement }: Mutant): bigint =>
    BigInt(Bun.hash(JSON.stringify([values.seed, file, start, end, replacement])));
  return all.toSorted((one, other) => (rank(one) < rank(other) ? -1 : 1)).slice(0, Number(values.count));
}

/** Coverage does not see the lines that run in worker threads. For these, the tests of the same folder run. */
function testsFor({ file, line, lastLine }: Mutant, tests: readonly TestFile[]): TestFile[] {
  let covering: TestFile[] = [];
  // The line where a function's body begins may not count as executed.
  for (let next = line; covering.length === 0 && next <= lastLine; next++)
    covering = tests.filter(({ lines }) => lines.get(file)?.has(next));
  const found = covering.length > 0 ? covering : tests.filter(({ path }) => dirname(path) === dirname(file));
  let ms = 0;
  return found
    .toSorted((a, b) => a.ms - b.ms)
    .filter((test, index) => {
      ms += test.ms;
      return index === 0 || ms <= budgetMs;
    });
}

async function passes(mutant: Mutant, tests: readonly TestFile[], copy: string): Promise<boolean> {
  const path = join(copy, mutant.file);
  const content = await readFile(path, "utf8");
  await writeFile(path, content.slice(0, mutant.start) + mutant.replacement + content.slice(mutant.end));
  try {
    const ms = tests.reduce((sum, test) => sum + test.ms, 0);
    const paths = tests.map((test) => `./${test.path}`);
    return (await runTests(copy, ["--bail", ...paths], TIMEOUT_MIN_MS + ms * TIMEOUT_FACTOR)) === 0;
  } finally {
    await writeFile(path, content);
  }
}

/** Runs each fast test file once with coverage. A file that fails without a fault is left out, with a message. */
async function measureTests(): Promise<TestFile[]> {
  const paths = globSync("{src,test,conformance}/**/!(*.system).test.ts", { cwd: original });
  const measured: TestFile[] = [];
  await inParallel(paths, async (path, copy) => {
    const coverage = join(copy, "coverage", path);
    const started = performance.now();
    const args = ["--coverage", "--coverage-reporter=lcov", `--coverage-dir=${coverage}`, `./${path}`];
    const code = await runTests(copy, args, 10 * 60_000);
    const ms = performance.now() - started;
    if (code !== 0) process.stderr.write(`left out, because it fails without a fault: ${path}\n`);
    else measured.push({ path, ms, lines: await readLcov(join(coverage, "lcov.info")) });
  });
  return measured;
}

/** Returns the executed lines by source file. `bun test` writes no file if a test executes none. */
async function readLcov(path: string): Promise<Map<string, Set<number>>> {
  const lines = new Map<string, Set<number>>();
  const text = await readFile(path, "utf8").catch(() => "");
  for (const [, file = "", record = ""] of text.matchAll(/^SF:(.*)\n([\s\S]*?)^end_of_record/gm)) {
    const executed = record.matchAll(/^DA:(\d+),(?!0$)/gm);
    lines.set(relative(".", file), new Set(executed.map(([, line]) => Number(line))));
  }
  return lines;
}

/** Runs `bun test` in a process group of its own, so that nothing survives a timeout. Returns the exit code, or 1 at the timeout. */
async function runTests(cwd: string, args: readonly string[], timeoutMs: number): Promise<number> {
  const child = Bun.spawn(["bin/bun", "test", "--timeout=60000", ...args], {
    cwd,
    detached: true,
    stdio: ["ignore", "ignore", "ignore"],
  });
  const timer = setTimeout(() => process.kill(-child.pid, "SIGKILL"), timeoutMs);
  const code = await child.exited;
  clearTimeout(timer);
  return code;
}

async function copyProject(): Promise<string> {
  const copy = await mkdtemp(join(tmpdir(), "todo-mutation-"));
  await copyRepository(copy);
  return copy;
}

/** Works through the items, one at a time in each copy of the project. */
async function inParallel<T>(
  items: readonly T[],
  work: (item: T, copy: string) => Promise<void>,
): Promise<void> {
  const waiting = items.values();
  await Promise.all(
    copies.map(async (copy) => {
      for (const item of waiting) await work(item, copy);
    }),
  );
}
