/** The CPU time per request as a bar chart in SVG, readable on light and dark pages. */
import { type Comparison, cpuPerRequest } from "./compare.ts";

/** The servers of the chart, by their labels in the tables, and how the chart names them. */
const SERVERS: Readonly<Record<string, string>> = {
  "todo-service": "todo-service",
  "Elysia (Bun), equal": "Elysia, same checks",
  "Go, equal": "Go, same checks",
  Fastify: "Fastify",
  Express: "Express",
};
const WIDTH = 720;
const BAR_LEFT = 150;
const BAR_WIDTH = 500;
const ROW = 20;
const TITLE = 34;

/** Returns the chart: a group of bars for each workload, each scaled to its longest bar. */
export function chart(workloads: ReadonlyMap<string, readonly Comparison[]>): string {
  let y = 0;
  const groups: string[] = [];
  for (const [name, comparisons] of workloads) {
    groups.push(`<text class="title" x="0" y="${y + 22}">${name}</text>`);
    y += TITLE;
    const bars = comparisons.flatMap(({ label, slices }) => {
      const server = SERVERS[label];
      return server === undefined ? [] : [{ server, cpu: cpuPerRequest(slices) }];
    });
    const longest = Math.max(...bars.map(({ cpu }) => cpu));
    for (const { server, cpu } of bars) {
      const width = Math.round((cpu / longest) * BAR_WIDTH);
      groups.push(
        `<text x="${BAR_LEFT - 8}" y="${y + 14}" text-anchor="end">${server}</text>`,
        `<rect class="${server === "todo-service" ? "own" : "other"}" x="${BAR_LEFT}" y="${y + 3}" width="${width}" height="${ROW - 6}" rx="2"/>`,
        `<text x="${BAR_LEFT + width + 6}" y="${y + 14}">${cpu.toFixed(cpu < 100 ? 1 : 0)} µs</text>`,
      );
      y += ROW;
    }
  }
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${y + 6}" role="img" aria-label="CPU time per request; shorter is better">
<style>
text { font: 13px system-ui, sans-serif; fill: #1c201e }
.title { font-weight: 600 }
.own { fill: #1f6f5c }
.other { fill: #b5bbb7 }
@media (prefers-color-scheme: dark) {
  text { fill: #e8ebe8 }
  .own { fill: #7fd3ba }
  .other { fill: #4a524e }
}
</style>
${groups.join("\n")}
</svg>
`;
}
