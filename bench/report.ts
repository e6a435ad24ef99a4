/** The results as Markdown. */
import { cpus, release, totalmem } from "node:os";
import product from "../package.json";
import type { Pace, Standing } from "./compare.ts";
import { type Finding, median, quantile } from "./finding.ts";
import bench from "./package.json";
import { node, root, type Target } from "./workloads.ts";

export function standingsTable(standings: readonly Standing[]): string {
  return table(
    [
      "server",
      "requests/s",
      "CPU µs/request",
      "of its core",
      "todo-service against it, by CPU",
      "by requests/s",
    ],
    standings.map(({ label, perSecond, cpu, core, byCpu, byRate }) => [
      label,
      withSpread(perSecond),
      withSpread(cpu),
      `${Math.round(median(core) * 100)} %`,
      withSpread(byCpu),
      withSpread(byRate),
    ]),
  );
}

export function findingsTable(findings: readonly Finding[]): string {
  return table(
    ["figure", "measured", "lowest – highest", "readings"],
    findings.map(({ name, figure, readings }) => [
      name,
      number(figure),
      `${number(Math.min(...readings))} – ${number(Math.max(...readings))}`,
      String(readings.length),
    ]),
  );
}

/** The figures that targets name, each with what stands beside it. */
export type Figures = Map<string, { value: number; beside: string }>;

export function targetsTable(targets: readonly Target[], figures: Figures): string {
  return table(
    ["target", "measured", "", "beside it"],
    targets.map(({ says, figure, least = -Infinity, most = Infinity }) => {
      const measured = figures.get(figure);
      if (measured === undefined) return [says, "not measured", "", ""];
      const met = measured.value >= least && measured.value <= most;
      return [says, number(measured.value), met ? "met" : "**missed**", measured.beside];
    }),
  );
}

export function header({ rounds, seconds }: Pace): string {
  const machine = `${cpus()[0]?.model.trim()}, ${cpus().length} cores, ${Math.round(totalmem() / 2 ** 30)} GiB, Linux ${release().split("-")[0]}`;
  return `# Benchmark results

Written by \`npm run bench\`; what the columns mean is in [README.md](README.md).

- Date: ${new Date().toISOString().slice(0, 16).replace("T", " ")} UTC
- todo-service ${product.version}, git revision ${revision()}
- Bun ${Bun.version}, Node ${output([node, "--version"])}, ${peers}, ${output(["wrk", "-v"]).split(" Copyright")[0]}
- Machine: ${machine}; the server on core 0, the load on core 1
- ${rounds} rounds of ${seconds} s slices at 64 connections

**A ratio is judged by CPU a request**, with requests/s beside it. Each server is pinned to one core and saturates it,
so that CPU a request is what bounds its requests/s. Requests/s also fall when the host gives the core to others, or
when the load generator is the slower of the two; CPU a request counts only the time the server ran. Ratios are taken
within a round, between neighbours in time, and the median of the rounds is given.
`;
}

/** Time of all cores so far, in clock ticks: at work, and taken by the host for others ("steal"). */
export function coreTime(): { worked: number; stolen: number } {
  const [, ...ticks] = output(["head", "-n1", "/proc/stat"]).split(/\s+/);
  const [user = 0, nice = 0, system = 0, , , irq = 0, softirq = 0, steal = 0] = ticks.map(Number);
  return { worked: user + nice + system + irq + softirq, stolen: steal };
}

export function stolen(since: ReturnType<typeof coreTime>): string {
  const now = coreTime();
  const taken = now.stolen - since.stolen;
  const share = Math.round((100 * taken) / (taken + now.worked - since.worked));
  return `While this ran, the host kept from us ${share} % of the time the cores asked for (steal in /proc/stat).`;
}

const peers = Object.entries(bench.dependencies)
  .filter(([name]) => name !== "node")
  .map(([name, version]) => `${name} ${version}`)
  .join(", ");

function revision(): string {
  const at = output(["git", "rev-parse", "--short", "HEAD"]) || "none";
  const changed = output(["git", "status", "--porcelain", "--", "src", "package.json"]) !== "";
  return changed ? `${at} with uncommitted changes` : at;
}

function output(command: string[]): string {
  return Bun.spawnSync(command, { cwd: root, stderr: "ignore" }).stdout.toString().trim();
}

/** The median, and in brackets the middle half of the readings. */
export function withSpread(readings: readonly number[]): string {
  return `${number(median(readings))} (${number(quantile(readings, 0.25))} – ${number(quantile(readings, 0.75))})`;
}

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
