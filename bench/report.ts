/** The results as Markdown. */
import { cpus, release, totalmem } from "node:os";
import product from "../package.json";
import { type Comparison, cpuPerRequest, type RunOptions, type SlicePair, speedRatio } from "./compare.ts";
import { type Measurement, median, quantile } from "./measurement.ts";
import bench from "./package.json";
import { node, root } from "./servers.ts";
import type { Target } from "./targets.ts";

/** The value of each figure that a target can name, and the spread of its readings as text. */
export type Figures = Map<string, { readonly value: number; readonly spread: string }>;

/** Returns the ratios of a workload, each named `workload / label`. */
export const ratioFigures = (workload: string, comparisons: readonly Comparison[]): Figures =>
  new Map(
    comparisons.slice(1).map(({ label, sessions }) => {
      const pairs = sessions.flat();
      return [`${workload} / ${label}`, { value: speedRatio(pairs), spread: middleHalf(pairs) }];
    }),
  );

export const measurementFigures = (measurements: readonly Measurement[]): Figures =>
  new Map(measurements.map(({ name, value, readings }) => [name, { value, spread: range(readings) }]));

export function comparisonTable(comparisons: readonly Comparison[]): string {
  const own = comparisons[0]?.label ?? "";
  return table(
    ["server", "CPU µs/request", `${own} against it`, "middle half of the pairs", "requests/s"],
    comparisons.map(({ label, slices, sessions, perSecond }) => {
      const pairs = sessions.flat();
      return [
        label,
        number(cpuPerRequest(slices)),
        ...(pairs.length === 0 ? ["", ""] : [number(speedRatio(pairs)), middleHalf(pairs)]),
        perSecond.length === 0 ? "" : number(median(perSecond)),
      ];
    }),
  );
}

export function measurementTable(measurements: readonly Measurement[]): string {
  return table(
    ["figure", "measured", "lowest – highest", "readings"],
    measurements.map(({ name, value, readings }) => [
      name,
      number(value),
      range(readings),
      String(readings.length),
    ]),
  );
}

/** Returns the table of the targets that were measured. */
export function targetSection(targets: readonly Target[], figures: Figures): string {
  const reasons: string[] = [];
  const rows = targets.flatMap(({ description, figure, min = -Infinity, max = Infinity, reason }) => {
    const measured = figures.get(figure);
    if (measured === undefined) return [];
    const { value, spread } = measured;
    const isMet = value >= min && value <= max;
    if (!isMet && reason !== undefined) reasons.push(`- **${description}**: ${reason}\n`);
    return [[description, number(value), spread, isMet ? "met" : "**missed**"]];
  });
  const why = reasons.length === 0 ? "" : `\nWhy targets are missed:\n\n${reasons.join("")}`;
  return `## Targets\n\n${table(["target", "measured", "spread", ""], rows)}${why}`;
}

/** One request that two checkouts of this project answered. */
export interface CheckoutResult {
  readonly name: string;
  readonly comparisons: readonly Comparison[];
}

/** A ratio counts as different from 1 if it is at least this far away. */
const NOISE = 0.01;
const MIN_SESSIONS = 6;

/** Returns a table of this checkout beside another one. */
export const checkoutTable = (results: readonly CheckoutResult[]): string =>
  table(
    ["request", "this, µs", "other, µs", "this against other", "lowest – highest session", ""],
    results.map(checkoutCells),
  );

/** Returns one row of that table, to be printed before the others are known. */
export const checkoutLine = (result: CheckoutResult): string => checkoutCells(result).join("  ");

function checkoutCells({ name, comparisons: [own, other] }: CheckoutResult): string[] {
  if (own === undefined || other === undefined) throw new Error(`${name} needs two checkouts`);
  const bySession = other.sessions.map(speedRatio);
  return [
    name,
    number(cpuPerRequest(own.slices)),
    number(cpuPerRequest(other.slices)),
    number(speedRatio(other.sessions.flat())),
    range(bySession),
    agreedDifference(bySession),
  ];
}

/** Returns the difference on which all sessions but at most one agree. */
function agreedDifference(ratios: readonly number[]): string {
  if (ratios.length < MIN_SESSIONS) return "too few sessions";
  const [, secondLowest = 1, ...others] = ratios.toSorted((a, b) => a - b);
  const secondHighest = others.at(-2) ?? 1;
  if (secondHighest < 1 - NOISE) return "**slower**";
  return secondLowest > 1 + NOISE ? "faster" : "same";
}

export function header({ sessions, pairs, wrkRuns }: RunOptions): string {
  const machine = `${cpus()[0]?.model.trim()}, ${cpus().length} cores, ${Math.round(totalmem() / 2 ** 30)} GiB, Linux ${release().split("-")[0]}`;
  const wrk = output(["wrk", "-v"]).split(" Copyright")[0];
  const go = output(["go", "version"]).replace(/^go version go(\S+).*/, "Go $1");
  const nginx = Bun.spawnSync(["nginx", "-v"]).stderr.toString().trim().replace("nginx version: ", "");
  return `# Benchmark results

\`npm run bench\` writes this page. [README.md](README.md) explains the columns and the method.

- Date: ${new Date().toISOString().slice(0, 16).replace("T", " ")} UTC
- todo-service ${product.version}, git revision ${revision()}
- Bun ${Bun.version}, Node ${output([node, "--version"])}, ${go}, ${peers}, ${nginx}, ${wrk}
- Machine: ${machine}; servers on core 0, load on core 1
- Starts of all servers: ${sessions}. Pairs of slices for each ratio: ${sessions * pairs}. Runs of wrk, one second each, for each rate: ${sessions * wrkRuns}

Ratios compare **requests per CPU second**, because a server that saturates its core is limited by its CPU time per
request. Requests per second also depend on the load generator and on other programs on the machine.
`;
}

/** Returns the time of all cores so far, in clock ticks: at work, and withheld by the host ("steal"). */
export function coreTime(): { busy: number; stolen: number } {
  const [, ...ticks] = output(["head", "-n1", "/proc/stat"]).split(/\s+/);
  const [user = 0, nice = 0, system = 0, , , irq = 0, softirq = 0, steal = 0] = ticks.map(Number);
  return { busy: user + nice + system + irq + softirq, stolen: steal };
}

export function stealSentence(since: ReturnType<typeof coreTime>): string {
  const now = coreTime();
  const stolen = now.stolen - since.stolen;
  const share = Math.round((100 * stolen) / (stolen + now.busy - since.busy));
  return `During this run the host withheld ${share} % of the CPU time that the cores asked for (steal in /proc/stat).\n`;
}

const peers = Object.entries(bench.dependencies)
  .filter(([name]) => name !== "node")
  .map(([name, version]) => `${name} ${version}`)
  .join(", ");

function revision(): string {
  const hash = output(["git", "rev-parse", "--short", "HEAD"]) || "none";
  const isChanged = output(["git", "status", "--porcelain", "--", "src", "package.json"]) !== "";
  return isChanged ? `${hash} with uncommitted changes` : hash;
}

function output(command: string[]): string {
  return Bun.spawnSync(command, { cwd: root, stderr: "ignore" }).stdout.toString().trim();
}

/** Returns the middle half of the ratios of single pairs. */
function middleHalf(pairs: readonly SlicePair[]): string {
  const each = pairs.map((pair) => speedRatio([pair]));
  return `${number(quantile(each, 0.25))} – ${number(quantile(each, 0.75))}`;
}

const range = (readings: readonly number[]): string =>
  `${number(Math.min(...readings))} – ${number(Math.max(...readings))}`;

function number(value: number): string {
  const digits = Math.abs(value) >= 100 ? 0 : Math.abs(value) >= 10 ? 1 : 2;
  return value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
}

function table(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const widths = head.map((_, column) =>
    Math.max(3, ...[head, ...rows].map((row) => row[column]?.length ?? 0)),
  );
  const line = (cells: readonly string[]) =>
    `| ${widths.map((width, column) => (cells[column] ?? "").padEnd(width)).join(" | ")} |\n`;
  return line(head) + line(widths.map((width) => "-".repeat(width))) + rows.map(line).join("");
}
