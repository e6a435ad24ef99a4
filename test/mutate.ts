/**
 * Tests the tests: plants one fault at a time in a copy of the project and counts the faults that no test notices.
 *
 * Usage: npm run test:mutation -- FOLDER|FILE… [--count 200] [--seed 1] [--seconds 30] [--jobs 2] [--mutants ID,ID] [--tests FOLDER]
 *
 * StrykerJS makes the faults (mutants). Its own runner cannot be used, because it knows neither `bun test` nor which
 * test covers which line. For each mutant, this script runs the fast tests whose coverage includes the mutated line,
 * the quickest first, until they would take more than `--seconds`. `--mutants` runs the named mutants again.
 * `--tests` uses only the tests below a folder; it can be repeated. The script works on copies of the project, so you can
 * edit the project while it runs.
 * Not planted: an empty string instead of a sentence, because the wording of messages is not behavior.
 */
import { existsSync } from "node:fs";
import { cp, mkdir, mkdtemp, readdir, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { availableParallelism, tmpdir } from "node:os";
import { basename, dirname, join, relative, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";

const ROOT = fileURLToPath(new URL("..", import.meta.url));
/** A mutant whose tests take this many times as long as usual has made them hang. */
const TIMEOUT_FACTOR = 4;
const TIMEOUT_MIN_MS = 30_000;

interface Lines {
  readonly file: string;
  readonly line: number;
  readonly lastLine: number;
}

interface Mutant extends Lines {
  readonly id: string;
  readonly start: number;
  readonly end: number;
  readonly kind: string;
  readonly replacement: string;
}

/** A test file: how long it takes, and the lines of each source file that it runs. */
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
    jobs: { type: "string", default: String(availableParallelism()) },
    mutants: { type: "string" },
    tests: { type: "string", multiple: true, default: ["src", "test", "conformance"] },
  },
});
if (positionals.length === 0) {
  process.stderr.write("Name at least one folder, such as src/credential.\n");
  process.exit(2);
}

const budgetMs = Number(values.seconds) * 1000;
const copies = await Promise.all(Array.from({ length: Number(values.jobs) }, copyProject));
const [original = ROOT] = copies;
try {
  const tests = await measureTests(copies);
  for (const folder of positionals) await judge(folder, tests);
} finally {
  await Promise.all(copies.map((copy) => rm(copy, { recursive: true })));
}

/** Plants the sample of one folder and prints the score and the survivors. */
async function judge(folder: string, tests: readonly TestFile[]): Promise<void> {
  const all = await mutantsOf(folder);
  const starters = await startersIn(folder);
  const ids = values.mutants?.split(",");
  const sampled = ids
    ? all.filter(({ id }) => ids.includes(id))
    : sample(all, Number(values.count), values.seed);
  const survivors: Mutant[] = [];
  let judged = 0;
  await inParallel(sampled, async (mutant, copy) => {
    const affected = testsFor(mutant, tests, starters);
    const isKilled = affected.length > 0 && !(await passes(mutant, affected, copy));
    judged++;
    if (!isKilled) survivors.push(mutant);
    const state = isKilled ? "killed" : affected.length === 0 ? "not covered" : "survived";
    process.stderr.write(`${judged}/${sampled.length} ${folder} ${mutant.id} ${state}\n`);
  });
  const share = (100 * survivors.length) / Math.max(sampled.length, 1);
  process.stdout.write(
    `\n${folder}: ${all.length} mutants, ${sampled.length} planted (seed ${values.seed}), ` +
      `${survivors.length} survived (${share.toFixed(1)} %)\n`,
  );
  for (const { id, file, line, kind, start, end, replacement } of survivors.toSorted((a, b) =>
    `${a.file}:${a.line}`.localeCompare(`${b.file}:${b.line}`, "en", { numeric: true }),
  )) {
    const code = (await readFile(join(original, file), "utf8")).slice(start, end);
    process.stdout.write(`  ${id} line ${line} ${kind}: ${oneLine(code)} -> ${oneLine(replacement)}\n`);
  }
}

function oneLine(code: string): string {
  return code.replace(/\s+/g, " ").slice(0, 100);
}

/** A mutant as `mutants.mjs` prints it; lines and columns count from 0. */
interface FoundMutant {
  readonly id: string;
  readonly file: string;
  readonly start: Place;
  readonly end: Place;
  readonly kind: string;
  readonly replacement: string;
}

interface Place {
  readonly line: number;
  readonly column: number;
}

async function mutantsOf(folder: string): Promise<Mutant[]> {
  const files = (await sourcesIn(folder)).filter(
    (path) => !/\.test\.ts$|\.d\.ts$|\/contract\.ts$/.test(path),
  );
  const child = Bun.spawn(["node", "test/mutants.mjs", ...files], { cwd: original, stdout: "pipe" });
  const found: readonly FoundMutant[] = JSON.parse(await new Response(child.stdout).text());
  const texts = new Map(
    await Promise.all(
      files.map(async (file) => [file, await readFile(join(original, file), "utf8")] as const),
    ),
  );
  return found.flatMap(({ id, file, start: from, end: to, kind, replacement }) => {
    const content = texts.get(file) ?? "";
    const [start, end] = [offsetOf(content, from), offsetOf(content, to)];
    if (kind === "StringLiteral" && /\S\s\S/.test(content.slice(start, end))) return [];
    return [{ id, file, line: from.line + 1, lastLine: to.line + 1, start, end, kind, replacement }];
  });
}

function offsetOf(text: string, { line, column }: Place): number {
  return text.split("\n", line).reduce((sum, row) => sum + row.length + 1, column);
}

async function sourcesIn(folder: string): Promise<string[]> {
  if (folder.endsWith(".ts")) return [folder];
  const entries = await readdir(join(original, folder), { recursive: true });
  return entries
    .filter((path) => path.endsWith(".ts"))
    .map((path) => join(folder, path))
    .toSorted();
}

/** Draws without replacement. The draw of a mutant depends on the seed and on its own file only. */
function sample(all: readonly Mutant[], count: number, seed: string): Mutant[] {
  const rank = ({ file, start, end, replacement }: Mutant): bigint =>
    BigInt(Bun.hash(JSON.stringify([seed, file, start, end, replacement])));
  const ranked = all.map((mutant) => ({ mutant, rank: rank(mutant) }));
  return ranked
    .toSorted((one, other) => (one.rank < other.rank ? -1 : 1))
    .slice(0, count)
    .map(({ mutant }) => mutant);
}

/** By worker file, the line that starts it: coverage does not see the lines that run in worker threads. */
async function startersIn(folder: string): Promise<Map<string, Lines>> {
  const files = await sourcesIn(folder);
  const starters = new Map<string, Lines>();
  for (const worker of files.filter((path) => path.endsWith(".worker.ts"))) {
    for (const file of files.filter((path) => dirname(path) === dirname(worker))) {
      const rows = (await readFile(join(original, file), "utf8")).split("\n");
      const index = rows.findIndex((row) => row.includes(`new URL("./${basename(worker)}"`));
      if (index >= 0) starters.set(worker, { file, line: index + 1, lastLine: index + 1 });
    }
  }
  return starters;
}

/**
 * The tests that run the mutated line, the quickest first. For a worker file, the tests that start it. If there are
 * none, the tests of the same folder.
 */
function testsFor(
  mutant: Mutant,
  tests: readonly TestFile[],
  starters: ReadonlyMap<string, Lines>,
): TestFile[] {
  const { file, line, lastLine } = starters.get(mutant.file) ?? mutant;
  let covering = tests.filter(({ lines }) => lines.get(file)?.has(line));
  // The line where a function's body begins may not count as executed.
  for (let next = line + 1; covering.length === 0 && next <= lastLine; next++)
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
async function measureTests(folders: readonly string[]): Promise<TestFile[]> {
  const paths = (await Promise.all(values.tests.map(sourcesIn)))
    .flat()
    .filter((path) => path.endsWith(".test.ts") && !path.endsWith(".system.test.ts"));
  const measured: TestFile[] = [];
  await inParallel(
    paths,
    async (path, copy) => {
      const coverage = join(copy, "coverage", path);
      const started = performance.now();
      const args = ["--coverage", "--coverage-reporter=lcov", `--coverage-dir=${coverage}`, `./${path}`];
      const code = await runTests(copy, args, 10 * 60_000);
      const ms = performance.now() - started;
      if (code !== 0) process.stderr.write(`left out, because it fails without a fault: ${path}\n`);
      else measured.push({ path, ms, lines: await readLcov(join(coverage, "lcov.info")) });
    },
    folders,
  );
  return measured;
}

/** Returns the executed lines by source file. `bun test` writes no file if a test executes none. */
async function readLcov(path: string): Promise<Map<string, Set<number>>> {
  const lines = new Map<string, Set<number>>();
  if (!existsSync(path)) return lines;
  let current = new Set<number>();
  for (const row of (await readFile(path, "utf8")).split("\n")) {
    if (row.startsWith("SF:")) {
      current = new Set();
      lines.set(relative(".", row.slice(3)), current);
    }
    const [, line, hits] = /^DA:(\d+),(\d+)/.exec(row) ?? [];
    if (line !== undefined && hits !== "0") current.add(Number(line));
  }
  return lines;
}

/** Runs `bun test` in a process group of its own, so that nothing survives a timeout. Returns the exit code, or 1 at the timeout. */
async function runTests(cwd: string, args: readonly string[], timeoutMs: number): Promise<number> {
  const child = Bun.spawn(["bin/bun", "test", "--timeout=60000", ...args], {
    cwd,
    detached: true,
    stdin: "ignore",
    stdout: "ignore",
    stderr: "ignore",
  });
  const timer = setTimeout(() => process.kill(-child.pid, "SIGKILL"), timeoutMs);
  const code = await child.exited;
  clearTimeout(timer);
  return code;
}

async function copyProject(): Promise<string> {
  const copy = await mkdtemp(join(tmpdir(), "todo-mutation-"));
  const listed = Bun.spawn(["git", "ls-files", "-z"], { cwd: ROOT, stdout: "pipe" });
  for (const path of (await new Response(listed.stdout).text()).split("\0").filter(Boolean)) {
    await mkdir(dirname(join(copy, path)), { recursive: true });
    await cp(join(ROOT, path), join(copy, path));
  }
  await symlink(resolve(ROOT, "node_modules"), join(copy, "node_modules"));
  return copy;
}

/** Works through the items, one at a time in each copy of the project. */
async function inParallel<T>(
  items: readonly T[],
  work: (item: T, copy: string) => Promise<void>,
  folders: readonly string[] = copies,
): Promise<void> {
  const waiting = [...items];
  await Promise.all(
    folders.map(async (copy) => {
      for (let item = waiting.shift(); item !== undefined; item = waiting.shift()) await work(item, copy);
    }),
  );
}
