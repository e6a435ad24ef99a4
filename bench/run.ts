/** The benchmark's command line. See README.md. */
import { existsSync, mkdtempSync, readFileSync, realpathSync, rmSync, writeFileSync } from "node:fs";
import { availableParallelism, tmpdir } from "node:os";
import { parseArgs } from "node:util";
import { attacks } from "./attacks.ts";
import { chart } from "./chart.ts";
import { againstCheckout } from "./checkouts.ts";
import { type Comparison, compare, type RunOptions } from "./compare.ts";
import { experiments } from "./experiments.ts";
import peers from "./package.json";
import {
  type CheckoutResult,
  checkoutLine,
  checkoutTable,
  comparisonTable,
  coreTime,
  type Figures,
  header,
  measurementFigures,
  measurementTable,
  ratioFigures,
  stealSentence,
  targetSection,
} from "./report.ts";
import { stopAll } from "./server-process.ts";
import { buildGo, clientsFile } from "./servers.ts";
import { targets } from "./targets.ts";
import { workloads } from "./workloads.ts";

const here = `${import.meta.dir}/`;
/** The workloads of the chart, and where it is written. */
const CHARTED = ["GET one", "whoami", "POST", "GET list of 1,000"];
const CHART = "../docs/pictures/speed.svg";
const LOAD_CORE = "1";
const WHOLE: RunOptions = { sessions: 2, pairs: 14, wrkRuns: 1, warmUpMs: 1_000 };
const QUICK: RunOptions = { sessions: 1, pairs: 1, wrkRuns: 0, warmUpMs: 50 };
const CHECKOUTS: RunOptions = { sessions: 8, pairs: 16, wrkRuns: 0, warmUpMs: 700 };
const REQUIRED: Readonly<Record<string, string>> = {
  wrk: "wrk",
  nginx: "nginx-light",
  strace: "strace",
  slowhttptest: "slowhttptest",
  taskset: "util-linux",
  go: "golang-go",
};

const { values: options } = parseArgs({
  options: {
    quick: { type: "boolean", default: false },
    only: { type: "string" },
    sessions: { type: "string" },
    against: { type: "string" },
    help: { type: "boolean", short: "h", default: false },
  },
});
if (options.help) {
  process.stdout.write(
    "npm run bench -- [--quick] [--only NAME,…] [--sessions N] [--against CHECKOUT]; see bench/README.md\n",
  );
  process.exit(0);
}
const names = options.only?.toLowerCase().split(",");
const isChosen = ({ name }: { readonly name: string }) =>
  names === undefined || names.some((part) => name.toLowerCase().includes(part));

requirePrograms();
installPeers();
// Subprocesses that send load inherit the core of this process.
Bun.spawnSync(["taskset", "-acp", LOAD_CORE, String(process.pid)]);

const folder = mkdtempSync(`${tmpdir()}/todo-bench-`);
for (const signal of ["SIGINT", "SIGTERM"] as const)
  process.on(signal, () => cleanUp().then(() => process.exit(130)));
try {
  await Bun.write(`${folder}/clients`, clientsFile);
  buildGo(folder);
  if (options.against === undefined) await benchmark();
  else await compareCheckouts(options.against);
} finally {
  await cleanUp();
}

async function benchmark(): Promise<void> {
  const runOptions = withSessions(options.quick ? QUICK : WHOLE);
  const since = coreTime();
  const figures: Figures = new Map();
  const compared = new Map<string, readonly Comparison[]>();
  const sections: string[] = [];
  const print = (section: string) => {
    sections.push(section);
    process.stdout.write(`${section}\n`);
  };

  print(header(runOptions));
  for (const workload of workloads.filter(isChosen)) {
    const comparisons = await compare(workload, runOptions, folder);
    if (CHARTED.includes(workload.name)) compared.set(workload.name, comparisons);
    print(`## ${workload.name}\n\n${comparisonTable(comparisons)}`);
    for (const [name, figure] of ratioFigures(workload.name, comparisons)) figures.set(name, figure);
  }
  for (const experiment of [...experiments, ...attacks].filter(isChosen)) {
    const measurements = await experiment.run(options.quick ? "quick" : "whole", folder);
    print(`## ${experiment.name}\n\n${measurementTable(measurements)}`);
    for (const [name, figure] of measurementFigures(measurements)) figures.set(name, figure);
  }
  if (options.quick) {
    process.stdout.write("This run was quick, so its figures prove nothing. results.md was not changed.\n");
  } else {
    const judged = `${targetSection(targets, figures)}\n${stealSentence(since)}`;
    process.stdout.write(`${judged}\n`);
    if (names === undefined) {
      const [head = "", ...tables] = sections;
      writeFileSync(
        `${here}results.md`,
        [head, `![CPU time per request](${CHART})\n`, judged, ...tables].join("\n"),
      );
      writeFileSync(here + CHART, chart(compared));
    }
  }
  const unknown = targets.find(({ figure }) => !figures.has(figure));
  if (names === undefined && unknown !== undefined)
    throw new Error(`no workload or experiment has the figure ${unknown.figure}`);
}

async function compareCheckouts(path: string): Promise<void> {
  if (!existsSync(`${path}/bin/todo`)) fail(`--against: ${path} has no bin/todo`);
  const other = realpathSync(path);
  const runOptions = withSessions(options.quick ? QUICK : CHECKOUTS);
  const results: CheckoutResult[] = [];
  for (const workload of againstCheckout(other).filter(isChosen)) {
    const result = { name: workload.name, comparisons: await compare(workload, runOptions, folder) };
    results.push(result);
    process.stdout.write(`${checkoutLine(result)}\n`);
  }
  process.stdout.write(`\n# This checkout against ${other}\n\n${checkoutTable(results)}`);
}

function withSessions(runOptions: RunOptions): RunOptions {
  const { sessions } = options;
  if (sessions === undefined) return runOptions;
  if (!/^[1-9]\d?$/.test(sessions)) fail(`--sessions must be a whole number from 1 to 99, not ${sessions}`);
  return { ...runOptions, sessions: Number(sessions) };
}

async function cleanUp(): Promise<void> {
  await stopAll();
  rmSync(folder, { recursive: true, force: true });
}

function requirePrograms(): void {
  const missing = Object.keys(REQUIRED).filter((program) => Bun.which(program) === null);
  if (missing.length > 0) {
    const packages = missing.map((program) => REQUIRED[program]).join(" ");
    fail(
      `${missing.join(", ")} not found. Install it: apt-get install ${packages} (Debian and Ubuntu). The benchmark needs Linux.`,
    );
  }
  if (availableParallelism() < 2) fail("two cores are needed: one for the servers, one for the load");
}

/** Installs the peers if one is missing or has another version. */
function installPeers(): void {
  const isInstalled = Object.entries(peers.dependencies).every(([name, version]) => {
    const manifest = `${here}node_modules/${name}/package.json`;
    return existsSync(manifest) && JSON.parse(readFileSync(manifest, "utf8")).version === version;
  });
  if (isInstalled) return;
  process.stdout.write("Installing the peers (npm ci in bench/)\n");
  const { success } = Bun.spawnSync(["npm", "ci"], { cwd: here, stdio: ["ignore", "inherit", "inherit"] });
  if (!success) fail("npm ci in bench/ failed");
}

function fail(reason: string): never {
  process.stderr.write(`bench: ${reason}\n`);
  process.exit(1);
}
