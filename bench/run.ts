/**
 * The benchmark: `npm run bench [-- --quick] [--rounds N] [--slice SECONDS] [--only NAME,NAME]`.
 * A full run writes results.md; a quick or partial one only prints.
 */
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { availableParallelism, tmpdir } from "node:os";
import { parseArgs } from "node:util";
import { attacks } from "./attacks.ts";
import { stopAll } from "./child.ts";
import { compare } from "./compare.ts";
import { experiments } from "./experiments.ts";
import { median } from "./finding.ts";
import peers from "./package.json";
import {
  coreTime,
  type Figures,
  findingsTable,
  header,
  standingsTable,
  stolen,
  targetsTable,
  withSpread,
} from "./report.ts";
import { clientsFile, targets, workloads } from "./workloads.ts";

const here = new URL(".", import.meta.url).pathname;
const loadCore = "1";

const { values: options } = parseArgs({
  options: {
    quick: { type: "boolean", default: false },
    rounds: { type: "string" },
    slice: { type: "string", default: "1" },
    only: { type: "string" },
  },
});
const pace = {
  rounds: wholeNumber("--rounds", options.rounds ?? (options.quick ? "1" : "13")),
  seconds: wholeNumber("--slice", options.slice),
};
const names = options.only?.toLowerCase().split(",");
const chosen = ({ name }: { name: string }) =>
  names === undefined || names.some((part) => name.toLowerCase().includes(part));

requirePrograms();
installPeers();
// This process is part of the load, and wrk inherits its core.
Bun.spawnSync(["taskset", "-acp", loadCore, String(process.pid)]);

const folder = mkdtempSync(`${tmpdir()}/todo-bench-`);
for (const signal of ["SIGINT", "SIGTERM"] as const)
  process.on(signal, () => stop().then(() => process.exit(130)));
try {
  await bench();
} finally {
  await stop();
}

async function bench(): Promise<void> {
  await Bun.write(`${folder}/clients`, clientsFile);
  const since = coreTime();
  const figures: Figures = new Map();
  const sections: string[] = [];
  const say = (section: string) => {
    sections.push(section);
    process.stdout.write(`${section}\n`);
  };

  say(header(pace));
  for (const workload of workloads.filter(chosen)) {
    const standings = await compare(workload, pace, folder);
    say(`## ${workload.name}\n\n${standingsTable(standings)}`);
    for (const { label, byCpu, byRate } of standings) {
      const beside = `by CPU ${withSpread(byCpu)}, by requests/s ${withSpread(byRate)}`;
      figures.set(`${workload.name} / ${label}`, { value: median(byCpu), beside });
    }
  }
  for (const experiment of [...experiments, ...attacks].filter(chosen)) {
    const size = options.quick ? experiment.quickSize : experiment.size;
    const findings = await experiment.run(size, folder);
    say(`## ${size.toLocaleString("en")}: ${experiment.name}\n\n${findingsTable(findings)}`);
    for (const { name, figure } of findings) figures.set(name, { value: figure, beside: "" });
  }
  const verdicts = `## Targets\n\n${targetsTable(targets, figures)}\n${stolen(since)}\n`;
  process.stdout.write(`${verdicts}\n`);

  if (options.quick || names !== undefined) {
    process.stdout.write("A quick or partial run: too little to judge by; results.md is left as it was.\n");
    return;
  }
  const [top = "", ...tables] = sections;
  const notes = `## Notes\n\n${readFileSync(`${here}notes.md`, "utf8")}`;
  writeFileSync(`${here}results.md`, [top, verdicts, ...tables, notes].join("\n"));
}

async function stop(): Promise<void> {
  await stopAll();
  rmSync(folder, { recursive: true, force: true });
}

function requirePrograms(): void {
  if (!Bun.which("wrk")) refuse("the bench needs wrk (on Debian and Ubuntu: apt install wrk)");
  if (!Bun.which("strace")) refuse("the bench needs strace (on Debian and Ubuntu: apt install strace)");
  if (!Bun.which("slowhttptest"))
    refuse("the bench needs slowhttptest (on Debian and Ubuntu: apt install slowhttptest)");
  if (!Bun.which("taskset")) refuse("the bench needs Linux with taskset (Debian package util-linux)");
  if (availableParallelism() < 2) refuse("the bench needs two cores: one for the server, one for the load");
}

/** Installs the peers when one of them is missing or of another version. */
function installPeers(): void {
  const installed = Object.entries(peers.dependencies).every(([name, version]) => {
    const manifest = `${here}node_modules/${name}/package.json`;
    return existsSync(manifest) && JSON.parse(readFileSync(manifest, "utf8")).version === version;
  });
  if (installed) return;
  process.stdout.write("Installing the peers (npm ci in bench/)\n");
  const { success } = Bun.spawnSync(["npm", "ci"], { cwd: here, stdio: ["ignore", "inherit", "inherit"] });
  if (!success) refuse("npm ci in bench/ failed");
}

function wholeNumber(flag: string, text: string): number {
  if (!/^[1-9]\d{0,3}$/.test(text)) refuse(`${flag} must be a whole number from 1 to 9999, not ${text}`);
  return Number(text);
}

function refuse(reason: string): never {
  process.stderr.write(`bench: ${reason}\n`);
  process.exit(1);
}
